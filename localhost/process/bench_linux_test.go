package process

import (
	"context"
	"io"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/route"
)

// BenchmarkStart compares one run of a program that does nothing, its three pipes
// drained, under a supervisor (lend-shim, and this executable) and started directly.
// The ways take turns, so that a busy machine is busy for all of them; the figures
// that count are the ratios of the medians.
func BenchmarkStart(b *testing.B) {
	shim, self := New(Config{ShimPath: buildShim(b)}), New(Config{})
	defer func() { require.NoError(b, shim.Close()); require.NoError(b, self.Close()) }()
	ways := []struct {
		name string
		run  func() error
	}{
		{"direct", runDirect},
		{"shim", func() error { return runUnder(shim) }},
		{"self", func() error { return runUnder(self) }},
	}
	took := make([][]time.Duration, len(ways))
	for i := 0; b.Loop(); i++ {
		for k := range ways {
			w := (i + k) % len(ways)
			began := time.Now()
			if err := ways[w].run(); err != nil {
				b.Fatal(ways[w].name, err)
			}
			took[w] = append(took[w], time.Since(began))
		}
	}
	var direct float64
	for w, way := range ways {
		slices.Sort(took[w])
		median := float64(took[w][len(took[w])/2])
		if w == 0 {
			direct = median
		}
		b.ReportMetric(median/1e3, way.name+"-µs")
		b.ReportMetric(median/direct, way.name+"/direct")
	}
}

const nothing = "/bin/true"

func runDirect() error {
	c := exec.Command(nothing)
	c.Env = []string{}
	in, err1 := c.StdinPipe()
	stdout, err2 := c.StdoutPipe()
	stderr, err3 := c.StderrPipe()
	for _, err := range []error{err1, err2, err3, c.Start()} {
		if err != nil {
			return err
		}
	}
	drain(in, stdout, stderr)
	return c.Wait()
}

func runUnder(t *Transport) error {
	p, err := t.Start(context.Background(), Spec{Path: nothing, Args: []string{"true"}, Dir: "/", Stdin: true})
	if err != nil {
		return err
	}
	drain(p.Stdin(), p.Stdout(), p.Stderr())
	if e, err := p.Wait(context.Background()); err != nil || e != (route.Exit{Duration: e.Duration}) {
		return err
	}
	return p.Close()
}

func drain(in io.Closer, outputs ...io.Reader) {
	_ = in.Close()
	var w sync.WaitGroup
	for _, o := range outputs {
		w.Go(func() { _, _ = io.Copy(io.Discard, o) })
	}
	w.Wait()
}
