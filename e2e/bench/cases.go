//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"
)

// Names of what is compared; those of the gateway end in the transport.
const (
	byLocal  = "local process"
	bySSHGo  = "OpenSSH, Go client, warm"
	bySSHMux = "ssh, warm ControlMaster"
	bySSH    = "ssh, cold"
	bySSHC25 = "ssh, cold, curve25519"
)

func bySDK(transport string) string  { return "lend SDK, " + transport }
func byRaw(transport string) string  { return "raw stream, " + transport }
func byLend(transport string) string { return "lend run, cold, " + transport }

// field is everything that takes part.
type field struct {
	dir    string
	bin    string
	ways   map[string]way // within this process
	lines  map[string]way // a process for each run
	raw    map[string]raw
	order  []string
	noSSH  error // why OpenSSH does not take part
	closer []func()
}

func (f *field) close() {
	for i := len(f.closer) - 1; i >= 0; i-- {
		f.closer[i]()
	}
}

func (f *field) add(name string, w way) {
	f.ways[name] = w
	f.order = append(f.order, name)
}

// gather starts all that takes part.
func gather(ctx context.Context, dir string) (_ *field, err error) {
	bin := filepath.Join(dir, "bin")
	f := &field{dir: dir, bin: bin, ways: map[string]way{}, lines: map[string]way{}}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if err := build(ctx, bin); err != nil {
		return nil, err
	}
	f.add(byLocal, local(bin))
	w, err := newWorld(ctx, dir, bin)
	if err != nil {
		return nil, err
	}
	f.closer = append(f.closer, w.stop)
	for _, t := range transports() {
		s, err := w.sdk(ctx, t)
		if err != nil {
			return nil, err
		}
		f.closer = append(f.closer, s.close)
		f.add(bySDK(t), s.run)
	}
	var stop func()
	if f.raw, _, stop, err = startRaw(ctx); err != nil {
		return nil, err
	}
	f.closer = append(f.closer, stop)
	for _, t := range []string{"TCP", "QUIC"} {
		if f.lines[byLend(t)], err = w.commandLine(ctx, t); err != nil {
			return nil, err
		}
	}
	f.gatherShim(ctx, w)
	f.lines[byLocal] = processes(func(command []string) []string { return program(bin, command) })
	return f, f.gatherSSH(ctx, dir)
}

// gatherShim lets a shim take part; if it cannot, its case says why.
func (f *field) gatherShim(ctx context.Context, w *world) {
	run, stop, err := w.shim(ctx)
	if err != nil {
		f.lines[byShim] = func(context.Context, []string, io.Reader, io.Writer) error { return err }
		return
	}
	f.lines[byShim] = run
	f.closer = append(f.closer, stop)
}

// gatherSSH lets OpenSSH take part, if it can be started.
func (f *field) gatherSSH(ctx context.Context, dir string) error {
	var s *sshd
	if s, f.noSSH = startSSH(ctx, dir, f.bin); s == nil {
		return nil
	}
	f.closer = append(f.closer, s.stop)
	run, stop, err := s.client()
	if err != nil {
		return fmt.Errorf("connect to sshd: %w", err)
	}
	f.closer = append(f.closer, stop)
	f.add(bySSHGo, run)
	f.lines[bySSHMux] = s.commandLine("warm")
	f.lines[bySSH] = s.commandLine("cold")
	f.lines[bySSHC25] = s.commandLine("cold", "-o", "KexAlgorithms=curve25519-sha256")
	return nil
}

// Groups of cases.
const (
	groupStart   = "start"   // one short command at a time, within a process
	groupProcess = "process" // the same, a process of the caller for each
	groupOutput  = "output"
	groupInput   = "input"
	groupEcho    = "echo"
	groupBeside  = "beside" // short commands while a long output runs
)

func groupAtOnce(n int) string { return fmt.Sprintf("at once: %d", n) }

func concurrencies() []int { return []int{8, 64, 256} }

// addTo adds the cases.
func (f *field) addTo(s *Suite) {
	nothingToDo := []string{"true"}
	once := func(w way) func(context.Context) error {
		return func(ctx context.Context) error { return w(ctx, nothingToDo, nil, &counter{}) }
	}
	for _, name := range f.order {
		run := f.ways[name]
		s.Add(groupStart, name, func(ctx context.Context) (Sample, error) { return latency(ctx, s.N(400), once(run)) })
	}
	for _, name := range []string{byLocal, byShim, byLend("TCP"), byLend("QUIC"), bySSHMux, bySSH, bySSHC25} {
		if run := f.lines[name]; run != nil {
			s.Add(groupProcess, name, func(ctx context.Context) (Sample, error) {
				n := 64
				if name == bySSH || name == bySSHC25 {
					n = 16
				}
				return latency(ctx, s.N(n), func(ctx context.Context) error { return run(ctx, nothingToDo, nil, io.Discard) })
			})
		}
	}
	f.addBulk(s, int64(s.N(1024))<<20)
	f.addCrowd(s)
	f.addLinks(s)
	f.addNpm(s)
	for _, name := range f.order {
		run := f.ways[name]
		s.Add(groupEcho, name, func(ctx context.Context) (Sample, error) { return echo(ctx, s.N(3000), run) })
	}
	for _, t := range transports() {
		s.Add(groupEcho, byRaw(t), func(ctx context.Context) (Sample, error) { return f.raw[t].roundTrip(ctx, s.N(3000)) })
	}
	for _, name := range f.order {
		run := f.ways[name]
		s.Add(groupBeside, name, func(ctx context.Context) (Sample, error) { return beside(ctx, s.N(240), run, run) })
	}
	for _, n := range concurrencies() {
		for _, name := range f.order {
			run := f.ways[name]
			s.AddSome(fewReps, groupAtOnce(n), name, func(ctx context.Context) (Sample, error) {
				during := 1200 * time.Millisecond
				if s.Quick {
					during /= 4
				}
				return rate(ctx, n, during, once(run))
			})
		}
	}
}

// addCrowd adds what is measured on gateways of their own.
func (f *field) addCrowd(s *Suite) {
	c := crowd{dir: f.dir, bin: f.bin, peers: s.N(1000), silent: s.N(500), n: s.N(400)}
	s.AddSome(leastReps, groupCrowd, bySDK("TCP+Noise"), c.gatewayCase)
	s.AddSome(leastReps, groupCrowd, byLean, c.leanCase)
}

func (f *field) addBulk(s *Suite, n int64) {
	for _, name := range f.order {
		run := f.ways[name]
		s.AddSome(fewReps, groupOutput, name, func(ctx context.Context) (Sample, error) {
			return through(n, func() error { return run(ctx, []string{"produce", fmt.Sprint(n)}, nil, &counter{}) })
		})
		s.AddSome(fewReps, groupInput, name, func(ctx context.Context) (Sample, error) {
			return through(n, func() error { return run(ctx, []string{"consume"}, zeros(n), &counter{}) })
		})
	}
	for _, t := range transports() {
		s.AddSome(fewReps, groupOutput, byRaw(t), func(ctx context.Context) (Sample, error) {
			return through(n, func() error { return f.raw[t].output(ctx, n) })
		})
		s.AddSome(fewReps, groupInput, byRaw(t), func(ctx context.Context) (Sample, error) {
			return through(n, func() error { return f.raw[t].input(ctx, n) })
		})
	}
}
