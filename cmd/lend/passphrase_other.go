//go:build !linux && !darwin

package main

import "errors"

func promptPassphrase(string) ([]byte, error) {
	return nil, errors.New("cannot ask on this system: set LEND_PASSPHRASE_FD or LEND_PASSPHRASE")
}
