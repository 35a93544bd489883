//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	var (
		reps  = flag.Int("reps", 5, "repetitions; what takes long has fewer")
		limit = flag.Duration("limit", 7*time.Minute, "begin no repetition that would end later; 0 is none")
		quick = flag.Bool("quick", false, "an eighth of the work")
		only  = flag.String("only", "", "parts of the names of groups and cases, with commas")
		out   = flag.String("out", "", "write to this name, with .json, .md and .svg; the table goes to standard output")
		role  = flag.String("role", "", "what this process is, for the suite itself")
		dir   = flag.String("dir", "", "with -role")
	)
	flag.Parse()
	switch *role {
	case "raw":
		return serveRaw()
	case "far":
		return runErrand()
	case "sshd":
		return becomeSSHD(*dir)
	case "":
	default:
		return fmt.Errorf("-role %s: there is no such role", *role)
	}
	if *reps < 1 || flag.NArg() > 0 {
		return errors.New("usage: bench [-reps N] [-limit TIME] [-quick] [-only NAME,…] [-out NAME]")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &Suite{Reps: *reps, Quick: *quick, Limit: *limit}
	if *only != "" {
		s.Only = strings.Split(*only, ",")
	}
	return measure(ctx, s, *out)
}

func measure(ctx context.Context, s *Suite, out string) error {
	if err := raiseDescriptors(); err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "lend-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	f, err := gather(ctx, temp)
	if err != nil {
		return err
	}
	defer f.close()
	f.addTo(s)
	if len(s.Cases) == 0 {
		return errors.New("-only names no case")
	}
	failed := s.Run(ctx)
	r := report(s, f.noSSH)
	text := r.Markdown()
	fmt.Print(text)
	if out != "" {
		data, err := r.JSON()
		text = r.document(filepath.Base(out))
		failed = errors.Join(failed, err, write(out+".json", data), write(out+".md", []byte(text)),
			write(out+".svg", r.plot()), write(out+"-start.svg", r.plotStart()))
	}
	fmt.Fprint(os.Stderr, r.Summary())
	return errors.Join(failed, r.gaps(len(s.Only) == 0))
}

func write(file string, data []byte) error {
	return os.WriteFile(file, data, 0o644) //nolint:gosec // a report
}

// raiseDescriptors asks for as many files as this user may have.
func raiseDescriptors() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	l.Cur = l.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
}
