package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/protocol/name"
)

// replaceable refuses a path of the command line at which something stands that is no
// regular file: writing there by a rename would take its place. "" is no path.
func replaceable(flag, path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return usagef("", "%s: %w", flag, err)
	case !info.Mode().IsRegular():
		return usagef(flag+" with a new name", "%s %s: is %s; only a regular file is replaced", flag, name.Quote(path), kindText(info.Mode()))
	}
	return nil
}

func kindText(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "no regular file"
}

// replaceFile writes a private file that a flag names, in place of a regular one.
func replaceFile(flag, path string, data []byte) error {
	if err := replaceable(flag, path); err != nil {
		return err
	}
	return ownerfile.Replace(path, data)
}

// span is a flag that takes a time of some length.
type span struct {
	to   *time.Duration
	none bool // 0 is one
}

// moreThanNone is a flag whose time is longer than 0.
func moreThanNone(to *time.Duration) *span { return &span{to: to} }

// atLeastNone is a flag whose time may be 0, but not less.
func atLeastNone(to *time.Duration, usual time.Duration) *span {
	*to = usual
	return &span{to, true}
}

// Set implements pflag.Value.
func (s *span) Set(text string) error {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return err
	case d < 0 && s.none:
		return errors.New("want 0 or more")
	case d <= 0 && !s.none:
		return errors.New("want more than 0")
	}
	*s.to = d
	return nil
}

// Type implements pflag.Value.
func (s *span) Type() string { return "duration" }

// String implements pflag.Value; it is empty for a time that was not given.
func (s *span) String() string {
	if s.to == nil || *s.to == 0 {
		return ""
	}
	return s.to.String()
}

// operationID refuses what no operation can be called, and, if it may be the beginning
// of an ID, what none can begin with.
func operationID(id string, beginning bool) error {
	const want = "letters, digits, - and _"
	valid := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
	}
	switch {
	case id == "":
		return usagef("lend ops list --all", "the operation ID is empty")
	case beginning && (len(id) > name.MaxOperationID || strings.ContainsFunc(id, func(r rune) bool { return !valid(r) })):
		return usagef("lend ops list --all", "%s is no operation ID, nor the beginning of one: want %s, at most %d", name.Quote(id), want, name.MaxOperationID)
	case beginning:
		return nil
	}
	if _, err := name.ParseOperationID(id); err != nil {
		return &usageError{err: fmt.Errorf("%s is no operation ID: %w", name.Quote(id), err), hint: "an ID as lend run --op takes it, or --result FILE shows it"}
	}
	return nil
}
