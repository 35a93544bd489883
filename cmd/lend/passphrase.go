package main

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// maxPassphrase bounds what is read for one, in bytes.
const maxPassphrase = 4096

// askOnce gets the passphrase that is in use: never from an argument.
func (d *descriptors) askOnce() ([]byte, error) {
	pass, err := d.passphrase("LEND_PASSPHRASE")
	if pass != nil || err != nil {
		return pass, err
	}
	return promptPassphrase("passphrase of the secrets: ", "LEND_PASSPHRASE")
}

// askFirst gets one where none was in use before.
func (d *descriptors) askFirst() ([]byte, error) {
	for _, variable := range []string{"LEND_NEW_PASSPHRASE", "LEND_PASSPHRASE"} {
		pass, err := d.passphrase(variable)
		if pass != nil || err != nil {
			return pass, err
		}
	}
	return d.askNew()
}

// askNew gets one that is not in use yet. The one in use is never taken for it.
func (d *descriptors) askNew() ([]byte, error) {
	const variable = "LEND_NEW_PASSPHRASE"
	pass, err := d.passphrase(variable)
	if pass != nil || err != nil {
		return pass, err
	}
	pass, err = promptPassphrase("new passphrase: ", variable)
	if err != nil {
		return nil, err
	}
	again, err := promptPassphrase("once more: ", variable)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare(pass, again) != 1 {
		return nil, errors.New("the two are not the same")
	}
	return pass, nil
}

// passphrase reads the descriptor that VARIABLE_FD names, or VARIABLE; nil means that
// neither is set.
func (d *descriptors) passphrase(variable string) ([]byte, error) {
	if text, ok := os.LookupEnv(variable + "_FD"); ok {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%s_FD is not the number of a descriptor", variable)
		}
		pass, err := d.read(int(n), maxPassphrase)
		if err != nil {
			return nil, fmt.Errorf("%s_FD: %w", variable, err)
		}
		return trimLine(pass), nil
	}
	if text, ok := os.LookupEnv(variable); ok {
		return trimLine([]byte(text)), nil
	}
	return nil, nil
}

// trimLine takes one line end off; the result is not nil.
func trimLine(b []byte) []byte {
	return append([]byte{}, bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))...)
}

// readHidden reads a line of a terminal that neither shows nor edits it.
func readHidden(tty io.Reader) ([]byte, error) {
	var line []byte
	b := make([]byte, 1)
	for {
		if _, err := io.ReadFull(tty, b); err != nil {
			return nil, err
		}
		switch c := b[0]; {
		case c == '\r' || c == '\n':
			return line, nil
		case c == 3 || c == 4: // ^C, ^D
			return nil, errors.New("no passphrase was given")
		case c == 8 || c == 127:
			line = line[:max(len(line)-1, 0)]
		case len(line) == maxPassphrase:
			return nil, errors.New("passphrase is too long")
		default:
			line = append(line, c)
		}
	}
}
