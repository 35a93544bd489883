package client

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"time"
)

// interrupt makes a blocked Read of r return, if it can: then done is awaited.
func interrupt(r io.Reader, done <-chan struct{}) {
	type deadliner interface{ SetReadDeadline(t time.Time) error }
	switch r := r.(type) {
	case *io.PipeReader:
		_ = r.CloseWithError(errInputOver)
	case deadliner:
		if r.SetReadDeadline(time.Unix(1, 0)) != nil {
			return // a file that cannot: its Read ends when it will
		}
		<-done
		_ = r.SetReadDeadline(time.Time{})
		return
	default:
		if !inMemory(r) {
			return
		}
	}
	<-done
}

var errInputOver = errors.New("the command takes no more input")

// inMemory tells whether reading r never blocks, so that the input may travel
// with the request.
func inMemory(r io.Reader) bool {
	switch r := r.(type) {
	case *bytes.Buffer, *bytes.Reader, *strings.Reader:
		return true
	case *os.File:
		st, err := r.Stat()
		return err == nil && st.Mode().IsRegular()
	}
	return false
}
