package process

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func buildShim(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lend-shim")
	out, err := exec.Command("go", "build", "-o", path, "github.com/lendcli/lend/cmd/lend-shim").CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

func TestSmoke(t *testing.T) {
	tr := transport(t, Config{})
	p := start(t, tr, spec(marker(t), "exit", "7"))
	require.Equal(t, 7, wait(t, p).Code)
}

func BenchmarkStart(b *testing.B) {
	const program = "/bin/true"
	b.Run("direct", func(b *testing.B) {
		for b.Loop() {
			c := exec.Command(program)
			c.Env = []string{}
			c.Stdin, c.Stdout, c.Stderr = nil, nil, nil
			in, _ := c.StdinPipe()
			o, _ := c.StdoutPipe()
			e, _ := c.StderrPipe()
			if err := c.Start(); err != nil {
				b.Fatal(err)
			}
			var w sync.WaitGroup
			w.Go(func() { _, _ = io.Copy(io.Discard, o) })
			w.Go(func() { _, _ = io.Copy(io.Discard, e) })
			_ = in.Close()
			w.Wait()
			_ = c.Wait()
		}
	})
	for _, k := range []string{"shim", "self"} {
		b.Run(k, func(b *testing.B) {
			c := Config{}
			if k == "shim" {
				c.ShimPath = buildShim(b)
			}
			tr := New(c)
			defer tr.Close()
			s := Spec{Path: program, Args: []string{"true"}, Dir: "/", Stdin: true}
			for b.Loop() {
				p, err := tr.Start(context.Background(), s)
				if err != nil {
					b.Fatal(err)
				}
				var w sync.WaitGroup
				w.Go(func() { _, _ = io.Copy(io.Discard, p.Stdout()) })
				w.Go(func() { _, _ = io.Copy(io.Discard, p.Stderr()) })
				_ = p.Stdin().Close()
				w.Wait()
				if e, err := p.Wait(context.Background()); err != nil || e.Code != 0 {
					b.Fatal(e, err)
				}
				if err := p.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
