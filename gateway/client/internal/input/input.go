package input

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"time"
)

// ErrOver is what a pipe's writer is told when the command takes no more.
var ErrOver = errors.New("the command takes no more input")

// Interrupt makes a blocked Read of r return, if it can: then done is awaited.
func Interrupt(r io.Reader, done <-chan struct{}) {
	type deadliner interface{ SetReadDeadline(t time.Time) error }
	switch r := r.(type) {
	case *io.PipeReader:
		_ = r.CloseWithError(ErrOver)
	case deadliner:
		if r.SetReadDeadline(time.Unix(1, 0)) != nil {
			return // a file that cannot: its Read ends when it will
		}
		<-done
		_ = r.SetReadDeadline(time.Time{})
		return
	default:
		if !InMemory(r) {
			return
		}
	}
	<-done
}

// InMemory tells whether reading r never blocks, so that the input may travel
// with the request.
func InMemory(r io.Reader) bool {
	switch r := r.(type) {
	case *bytes.Buffer, *bytes.Reader, *strings.Reader:
		return true
	case *os.File:
		st, err := r.Stat()
		return err == nil && st.Mode().IsRegular()
	}
	return false
}
