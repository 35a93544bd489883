//go:build linux || darwin

package main

import (
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/gateway/client/broker/wire"
)

// exitRefused is the status of a refusal that needs no broker.
const exitRefused = 126

const (
	sayAccept = `eval "$(lend lease accept FILE)"`
	sayBroker = "lend broker"
)

// shim is one call; it returns the exit status.
func shim(as string, args []string) int {
	handle, path, ok := strings.Cut(os.Getenv("LEND_SESSION"), ":")
	if !ok || handle == "" || !strings.HasPrefix(path, "/") {
		say("there is no session here: LEND_SESSION names none", sayAccept)
		return exitUsage
	}
	call := wire.Call{Session: handle, Name: as, Args: args}
	call.Authority, call.HasAuthority = os.LookupEnv("LEND_AUTHORITY")
	payload, err := call.Append(nil)
	if err != nil {
		say("refused: ARGUMENT_REJECTED: there are more than 256 arguments, or a word is too long", "")
		return exitRefused
	}
	fd, problem := connect(path)
	if problem != "" {
		say(problem, sayBroker)
		return exitUsage
	}
	// From here on a signal is the command's.
	signals := make(chan os.Signal, 4)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // as under nohup
			signal.Notify(signals, s)
		}
	}
	if sendFirst(fd, wire.Header(wire.KindCall, len(payload))) != nil || sendAll(fd, payload) != nil {
		return untaken(path) // it starts nothing before it has the whole call
	}
	var cancelled atomic.Bool
	go pass(fd, signals, &cancelled)
	exit, err := receive(fd)
	switch {
	case unread(err) && !cancelled.Load():
		return untaken(path)
	case err != nil:
		return lost()
	}
	say(exit.Message, exit.Hint)
	return exit.Returns()
}

// unread tells whether the other end was closed before all that was sent to it was read,
// or before it was accepted. Linux alone says so; elsewhere, nobody knows.
func unread(err error) bool {
	return runtime.GOOS == "linux" && err == unix.ECONNRESET //nolint:errorlint // a system call's own
}

// untaken is the end of a call that no broker has read: nothing ran. The one that was
// connected to may have died in that moment, its socket a little after its other files.
func untaken(path string) int {
	fd, problem := connect(path)
	if problem != "" {
		say(problem, sayBroker)
		return exitUsage
	}
	_ = unix.Close(fd)
	say("the broker hung up before it had read the call: nothing ran", "lend broker status")
	return exitUsage
}

func lost() int {
	say("the broker went away: the outcome is unknown", "")
	return wire.StatusUnknown
}

// pass makes each signal a cancel; the third leaves.
func pass(fd int, signals <-chan os.Signal, cancelled *atomic.Bool) {
	for n := 1; ; n++ {
		<-signals
		cancelled.Store(true) // before it is sent: it may be all that is never read
		if n > 2 {
			say("left before the end; the outcome is unknown", "")
			os.Exit(wire.StatusUnknown)
		}
		_ = sendAll(fd, wire.Header(wire.KindCancel, 0)) // a broker that is gone shows when it is read
	}
}

// connect returns a socket to a broker of this user, behind a path that is this user's
// and closed to others; else what is wrong.
func connect(path string) (int, string) {
	var at, dir unix.Stat_t
	if unix.Lstat(path, &at) != nil {
		return -1, "no broker is running here"
	}
	uid := os.Geteuid()
	if at.Mode&unix.S_IFMT != unix.S_IFSOCK || at.Mode&0o077 != 0 || int(at.Uid) != uid ||
		unix.Stat(filepath.Dir(path), &dir) != nil || dir.Mode&0o077 != 0 || int(dir.Uid) != uid {
		return -1, "the broker's socket is not yours alone"
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, "no socket: " + err.Error()
	}
	unix.CloseOnExec(fd)
	if err := ignoringEINTR(func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) }); err != nil {
		return -1, "no broker is running here"
	}
	if user, err := userOf(fd); err != nil || user != uid {
		return -1, "the broker is not yours"
	}
	return fd, ""
}

// sendFirst sends a header with the standard streams.
func sendFirst(fd int, head []byte) error {
	rights := unix.UnixRights(0, 1, 2)
	n := 0
	err := ignoringEINTR(func() (err error) {
		n, err = unix.SendmsgN(fd, head, rights, nil, 0)
		return err
	})
	if err != nil {
		return err
	}
	return sendAll(fd, head[n:])
}

func sendAll(fd int, b []byte) error {
	for len(b) > 0 {
		n := 0
		err := ignoringEINTR(func() (err error) {
			n, err = unix.Write(fd, b)
			return err
		})
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func receive(fd int) (wire.Exit, error) {
	head := make([]byte, wire.HeaderSize)
	if err := receiveAll(fd, head); err != nil {
		return wire.Exit{}, err
	}
	kind, n, err := wire.ParseHeader(head)
	if err != nil || kind != wire.KindExit {
		return wire.Exit{}, wire.ErrMalformed
	}
	payload := make([]byte, n)
	if err := receiveAll(fd, payload); err != nil {
		return wire.Exit{}, err
	}
	return wire.ParseExit(payload)
}

func receiveAll(fd int, b []byte) error {
	for len(b) > 0 {
		n := 0
		err := ignoringEINTR(func() (err error) {
			n, err = unix.Read(fd, b)
			return err
		})
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		b = b[n:]
	}
	return nil
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); err != unix.EINTR { //nolint:errorlint // a system call's own
			return err
		}
	}
}
