//go:build !linux

package intent

import "errors"

const canExchange = false

func exchange(string, string) error { return errors.ErrUnsupported }
