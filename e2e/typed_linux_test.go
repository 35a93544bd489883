package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// typist types an answer when there is a question, as a person does.
type typist struct {
	io.Writer
	keys   io.Writer
	said   []byte
	answer string
}

func (t *typist) Write(b []byte) (int, error) {
	t.said = append(t.said, b...)
	if t.answer != "" && bytes.Contains(t.said, []byte("[y/N] ")) {
		if _, err := io.WriteString(t.keys, t.answer+"\n"); err != nil {
			return 0, err
		}
		t.answer = ""
	}
	return t.Writer.Write(b)
}

// typed ANSWER CODE COMMAND: what sh -c COMMAND asks on a terminal is answered after
// "y" was typed too early, and it exits with that status.
func cmdTyped(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: typed ANSWER CODE COMMAND")
	}
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	ts.Check(err)
	defer func() { _ = keys.Close() }()
	ts.Check(unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	ts.Check(err)
	screen, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	ts.Check(err)
	defer func() { _ = screen.Close() }()
	_, err = io.WriteString(keys, "y\n")
	ts.Check(err)
	c := exec.Command("sh", "-c", args[2])
	c.Dir = ts.MkAbs(".")
	for _, k := range []string{"PATH", "HOME", "WORK", "TMPDIR", "LEND_DIR", "NO_COLOR", "GORACE"} {
		c.Env = append(c.Env, k+"="+ts.Getenv(k))
	}
	c.Stdin, c.Stdout, c.Stderr = screen, ts.Stdout(), &typist{Writer: ts.Stderr(), keys: keys, answer: args[0]}
	err = c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Check(err)
	}
	if got := fmt.Sprint(c.ProcessState.ExitCode()); got != args[1] {
		ts.Fatalf("exit status %s, want %s", got, args[1])
	}
}
