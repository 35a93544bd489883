package localhost

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/localhost/sealed"
)

// nativeHost is a host on the real store and transport with one native Connector:
// an executable of the system, and as many bytes beside it as said.
type nativeHost struct {
	*Host
	store   *install.Store
	account *connection.Connection
	base    string
	path    string // of the installed executable
	id      route.Identity
}

func newNativeHost(tb testing.TB, program []byte, beside int) *nativeHost {
	tb.Helper()
	base, err := filepath.EvalSymlinks(tb.TempDir())
	require.NoError(tb, err)
	h := &nativeHost{base: base}
	h.store, err = install.Open(install.Config{Dir: filepath.Join(base, "install")})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, h.store.Close()) })
	r, err := h.store.Add(tb.Context(), install.Source{Path: nativeSource(tb, base, "1.0.0", program, beside)}, nil)
	require.NoError(tb, err)
	l, err := h.store.Launch(r)
	require.NoError(tb, err)
	h.path = l.Path
	require.NoError(tb, l.Close())

	root, err := connection.Open(filepath.Join(base, "connections"))
	require.NoError(tb, err)
	require.NoError(tb, root.Sealed().Create(sealed.Source{Kind: sealed.KeyFile}))
	h.account, err = root.Create(connectorKey(tb, "native"), connectionID(tb, "default"))
	require.NoError(tb, err)
	transport := process.New(process.Config{})
	tb.Cleanup(func() { require.NoError(tb, transport.Close()) })
	h.Host, err = New(Config{Store: h.store, Transport: transport, Connections: root})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, h.Close()) })
	_, err = h.Reconcile(tb.Context())
	require.NoError(tb, err)
	require.Len(tb, h.current(), 1)
	h.id = h.current()[0].Identity
	return h
}

// nativeSource writes a Connector directory.
func nativeSource(tb testing.TB, base, version string, program []byte, beside int) string {
	tb.Helper()
	dir := filepath.Join(base, "source-"+version)
	require.NoError(tb, os.MkdirAll(filepath.Join(dir, "bin"), 0o700))
	manifest := fmt.Sprintf(`{"schemaVersion": "1", "key": "native", "version": %q, "displayName": "Native",
		"cli": {"command": "native", "kind": "native", "entrypoint": "bin/native"}}`, version)
	require.NoError(tb, os.WriteFile(filepath.Join(dir, "connector-manifest.json"), []byte(manifest), 0o600))
	require.NoError(tb, os.WriteFile(filepath.Join(dir, "bin", "native"), program, 0o700))
	if beside > 0 {
		require.NoError(tb, os.WriteFile(filepath.Join(dir, "data"), make([]byte, beside), 0o600))
	}
	return dir
}

// run starts the Connector and returns how it ended; an error means that nothing ran.
func (h *nativeHost) run(ctx context.Context) (e route.Exit, err error) {
	p, err := h.Start(ctx, route.StartRequest{Identity: h.id})
	if err != nil {
		return e, err
	}
	e, err = p.Wait(ctx)
	return e, errors.Join(err, p.Close())
}

// trueAndFalse are two executables of one size that exit with 0 and with 1.
func trueAndFalse(tb testing.TB) (good, evil []byte) {
	tb.Helper()
	good, err := os.ReadFile("/bin/true")
	require.NoError(tb, err)
	evil, err = os.ReadFile("/bin/false")
	require.NoError(tb, err)
	size := max(len(good), len(evil)) + 1
	return append(good, make([]byte, size-len(good))...), append(evil, make([]byte, size-len(evil))...)
}

// A process of the same user that swaps the installed executable for its own and back,
// by every way there is, races the starts: each runs what was installed, or nothing.
func TestSwapperRacingTheStartNeverRuns(t *testing.T) {
	const busyForGood = "content-by-an-open-file"
	good, evil := trueAndFalse(t)
	for name, swap := range map[string]func(t *testing.T, path string) func(on bool){
		"directories": func(t *testing.T, path string) func(bool) { // the file keeps all its times
			t.Helper()
			mine, theirs := filepath.Dir(path), filepath.Join(t.TempDir(), "theirs")
			require.NoError(t, os.Mkdir(theirs, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(theirs, filepath.Base(path)), evil, 0o500))
			require.NoError(t, os.Chmod(theirs, 0o500))
			t.Cleanup(func() { _ = os.Chmod(theirs, 0o700) })
			return func(bool) { exchange(mine, theirs, filepath.Dir(mine), mine, theirs) }
		},
		"files": func(t *testing.T, path string) func(bool) {
			t.Helper()
			theirs := filepath.Join(t.TempDir(), "theirs")
			require.NoError(t, os.WriteFile(theirs, evil, 0o500))
			return func(bool) { exchange(path, theirs, filepath.Dir(path)) }
		},
		"content": func(_ *testing.T, path string) func(bool) {
			return func(on bool) { overwrite(path, good, evil, on) }
		},
		busyForGood: func(t *testing.T, path string) func(bool) { // no mode needs to change
			t.Helper()
			require.NoError(t, os.Chmod(path, 0o700))
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			require.NoError(t, err)
			require.NoError(t, os.Chmod(path, 0o500))
			t.Cleanup(func() { require.NoError(t, f.Close()) })
			return func(on bool) { _, _ = f.WriteAt(map[bool][]byte{true: evil, false: good}[on], 0) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newNativeHost(t, good, 0)
			e, err := h.run(t.Context())
			require.NoError(t, err)
			require.Zero(t, e.Code)
			do := swap(t, h.path)

			stop := make(chan struct{})
			var swapper sync.WaitGroup
			swapper.Go(func() {
				for on := true; ; on = !on {
					select {
					case <-stop:
						return
					default:
						do(on)
						pause := time.Duration(rand.IntN(1000)) * time.Microsecond // the pace of the attacker, not a wait
						if !on {
							pause *= 60 // what was installed is there for longer
						}
						time.Sleep(pause)
					}
				}
			})
			ran, refused := 0, 0
			// For a second, and longer on a machine that is busy, until both were seen.
			began := time.Now()
			enough := func() bool {
				took := time.Since(began)
				return took > 30*time.Second || took > time.Second && refused > 0 && (ran > 0 || name == busyForGood)
			}
			for !enough() {
				e, err := h.run(t.Context())
				if err != nil {
					require.ErrorIs(t, err, route.ErrUnavailable)
					refused++
					continue
				}
				require.Zero(t, e.Code, "the swapper's bytes ran")
				require.Empty(t, e.Signal, "the swapper's bytes ran")
				ran++
			}
			close(stop)
			swapper.Wait()
			t.Logf("%d ran, %d were refused", ran, refused)
			require.Positive(t, refused)
			if name != busyForGood { // what is open for writing is never executed
				require.Positive(t, ran)
			}
		})
	}
}

// exchange swaps two paths, and gives directories that are read-only their mode back.
func exchange(a, b string, dirs ...string) {
	for _, d := range dirs {
		_ = os.Chmod(d, 0o700)
	}
	_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	for _, d := range dirs {
		_ = os.Chmod(d, 0o500)
	}
}

// overwrite changes the file where it is, and gives it its mode again.
func overwrite(path string, good, evil []byte, on bool) {
	b := good
	if on {
		b = evil
	}
	if os.Chmod(path, 0o700) != nil {
		return
	}
	if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil { // not while it runs
		_, _ = f.WriteAt(b, 0)
		_ = f.Close()
	}
	_ = os.Chmod(path, 0o500)
}

// 200 starts a second go on while versions are imported beside them by the same
// process: none meets a file that is open for writing, or anything else.
func TestStartsWhileVersionsAreImported(t *testing.T) {
	good, _ := trueAndFalse(t)
	h := newNativeHost(t, good, 0)
	const starts, each = 300, 4 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var sources []string
	for n := range 100 {
		sources = append(sources, nativeSource(t, h.base, fmt.Sprintf("2.0.%d", n), good, 256<<10))
	}
	done := make(chan struct{})
	imported := make(chan int, 1)
	go func() {
		n := 0
		defer func() { imported <- n }()
		for _, source := range sources {
			select {
			case <-done:
				return
			default:
			}
			if _, err := h.store.Add(ctx, install.Source{Path: source}, nil); err != nil {
				t.Error(err)
				return
			}
			n++
		}
	}()
	var all sync.WaitGroup
	tick := time.NewTicker(each)
	defer tick.Stop()
	began := time.Now()
	for range starts {
		<-tick.C
		all.Go(func() {
			p, err := h.Start(ctx, route.StartRequest{Identity: h.id})
			if err != nil {
				t.Error(err)
				return
			}
			e, err := p.Wait(ctx)
			if err = errors.Join(err, p.Close()); err != nil || e.Code != 0 || e.Signal != "" {
				t.Error(e, err)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	close(done)
	n := <-imported
	t.Logf("%d starts in %v (%.0f a second) while %d versions were imported", starts, took, starts/took.Seconds(), n)
	require.Positive(t, n)
}
