//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// local runs programs of this machine with three pipes, all drained, and nothing in
// their environment.
func local(bin string) way {
	return func(ctx context.Context, command []string, stdin io.Reader, stdout io.Writer) error {
		return spawn(ctx, []string{}, program(bin, command), stdin, stdout)
	}
}

func spawn(ctx context.Context, env, words []string, stdin io.Reader, stdout io.Writer) error {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = env
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	fault, err3 := cmd.StderrPipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var drained sync.WaitGroup
	if stdin == nil {
		_ = in.Close()
	} else {
		drained.Go(func() { copyAll(in, stdin); _ = in.Close() })
	}
	drained.Go(func() { copyAll(io.Discard, fault) })
	copyAll(stdout, out)
	err := cmd.Wait() // not before the outputs are read
	drained.Wait()
	return err
}

// program is the command line of a command of the child, or of one that does
// nothing.
func program(bin string, command []string) []string {
	if command[0] == "true" {
		return []string{nothing, "run"}
	}
	return append([]string{filepath.Join(bin, "child")}, command...)
}

const nothing = "/bin/true"

var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }} //nolint:gochecknoglobals // a pool

// copyAll copies like a gateway would, whatever the ends could do together.
func copyAll(w io.Writer, r io.Reader) {
	b := buffers.Get().(*[64 << 10]byte)
	defer buffers.Put(b)
	for {
		n, err := r.Read(b[:])
		if n > 0 {
			if _, err := w.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// processes runs a command line as a person's program would: its output goes to a
// pipe, its complaints into the error.
func processes(line func(command []string) []string, env ...string) way {
	return func(ctx context.Context, command []string, stdin io.Reader, stdout io.Writer) error {
		words := line(command)
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Env = append(os.Environ(), env...)
		var said strings.Builder
		cmd.Stdin, cmd.Stderr = stdin, &said
		if stdout != io.Discard { // else the null device
			cmd.Stdout = stdout
		}
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w: %s", words[0], err, said.String())
		}
		return nil
	}
}
