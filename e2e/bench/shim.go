//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const byShim = "lend shim, warm broker, TCP"

// shim is the command line of a CLI under its own name, whose broker keeps the
// connection. It can do nothing but nothing.
func (w *world) shim(ctx context.Context) (_ way, stop func(), err error) {
	_, text, err := w.issue(ctx, "caller", "nothing", "TCP")
	if err != nil {
		return nil, nil, err
	}
	file := filepath.Join(w.dir, "shim.lease")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, nil, err
	}
	if _, err := w.run(ctx, w.caller, "shim", "add", "nothing", "--as", "nothing"); err != nil {
		return nil, nil, err
	}
	broker := w.command(ctx, w.caller, "broker", "--log", "error", "--wait", "1m")
	broker.Stderr = os.Stderr
	if err := broker.Start(); err != nil {
		return nil, nil, err
	}
	stop = func() {
		_ = broker.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(20*time.Second, func() { _ = broker.Process.Kill() })
		defer late.Stop()
		_ = broker.Wait()
	}
	session, err := w.session(ctx, file)
	if err != nil {
		stop()
		return nil, nil, err
	}
	line := func([]string) []string { return []string{filepath.Join(w.caller, "shims", "bin", "nothing"), "run"} }
	return processes(line, "LEND_DIR="+w.caller, "LEND_SESSION="+session), stop, nil
}

// session gives the lease to the broker, once that is there.
func (w *world) session(ctx context.Context, file string) (handle string, err error) {
	const script = `eval "$("$0" lease accept "$1")" && printf %s "$LEND_SESSION"`
	for deadline := time.Now().Add(20 * time.Second); ; {
		var said strings.Builder
		cmd := w.prepare(exec.CommandContext(ctx, "sh", "-c", script, filepath.Join(w.bin, "lend"), file), w.caller)
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err == nil && len(out) > 0 {
			return string(out), nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return "", fmt.Errorf("lend lease accept: %w: %s", err, said.String())
		}
		<-time.After(50 * time.Millisecond)
	}
}
