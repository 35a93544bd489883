package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lendcli/lend/protocol/name"
)

// Shim is what one file says. It may be copied freely.
type Shim struct {
	// Name is the file's, and what is typed: letters, digits and ._+-, at most 64,
	// beginning with a letter or a digit; not lend or lend-shim.
	Name string `json:"name"`
	// Lend is the absolute path of the lend that is called.
	Lend string `json:"lend"`
	// Home is the absolute directory that it is to use (--dir); "" means its default.
	Home string `json:"home,omitempty"`
	// Peer is a name of the policy or a peer ID: the calls are checked as that peer's.
	Peer string `json:"peer"`
	// Connector is whose commands are called.
	Connector name.ConnectorKey `json:"connector"`
	// Version is the Connector's; zero means the only one that is installed.
	Version name.Version `json:"version,omitzero"`
	// Command is the one that is called; zero means that the first argument names it.
	Command name.Command `json:"command,omitzero"`
}

// ErrInvalid means that a field of a Shim is not what it may be.
var ErrInvalid = errors.New("not a possible shim")

const (
	maxName = 64
	maxPath = 4096
	maxPeer = 256
	maxFile = 32 << 10
	head    = "#!/bin/sh\n"
	marker  = "# lend connector shim 1 "
	notice  = "# lend connector shim remove NAME takes it away; a file that was edited is nobody's.\n"
)

// CheckName refuses what cannot be a shim's name: ErrInvalid.
func CheckName(s string) error {
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("._+-", r)) {
			return fmt.Errorf("name %s: %w", name.Quote(s), ErrInvalid)
		}
	}
	if s == "" || len(s) > maxName {
		return fmt.Errorf("name of %d bytes: %w", len(s), ErrInvalid)
	}
	if s == "lend" || s == "lend-shim" {
		return fmt.Errorf("name %s is that of a program of ours: %w", s, ErrInvalid)
	}
	return nil
}

func (s Shim) check() error {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	if s.Connector.IsZero() {
		return fmt.Errorf("no connector: %w", ErrInvalid)
	}
	if !filepath.IsAbs(s.Lend) || s.Home != "" && !filepath.IsAbs(s.Home) {
		return fmt.Errorf("a path that is not absolute: %w", ErrInvalid)
	}
	if s.Peer == "" || len(s.Peer) > maxPeer || s.Peer[0] == '-' {
		return fmt.Errorf("peer %s: %w", name.Quote(s.Peer), ErrInvalid)
	}
	for _, text := range []string{s.Lend, s.Home, s.Peer} {
		if len(text) > maxPath || !utf8.ValidString(text) || strings.ContainsFunc(text, odd) {
			return fmt.Errorf("text %s: %w", name.Quote(text), ErrInvalid)
		}
	}
	return nil
}

// odd tells what has no place in one line of a script.
func odd(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
}

// render is the whole file.
func (s Shim) render() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	said, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	words := []string{"exec", quote(s.Lend), "connector", "try"}
	if s.Home != "" {
		words = append(words, "--dir", quote(s.Home))
	}
	words = append(words, "--peer", quote(s.Peer))
	if !s.Version.IsZero() {
		words = append(words, "--version", quote(s.Version.String()))
	}
	words = append(words, "--", quote(s.Connector.String()))
	if !s.Command.IsZero() {
		words = append(words, quote(s.Command.String()))
	}
	return []byte(head + marker + string(said) + "\n" + notice + strings.Join(words, " ") + " \"$@\"\n"), nil
}

// quote makes text one word of a POSIX shell, whatever it holds.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// parse returns what a file says, if it is ours and has that name.
func parse(file string, content []byte) (Shim, bool) {
	rest, ok := bytes.CutPrefix(content, []byte(head+marker))
	if !ok {
		return Shim{}, false
	}
	line, _, ok := bytes.Cut(rest, []byte("\n"))
	var s Shim
	if !ok || json.Unmarshal(line, &s) != nil || s.Name != file {
		return Shim{}, false
	}
	again, err := s.render()
	if err != nil || !bytes.Equal(again, content) {
		return Shim{}, false
	}
	return s, true
}
