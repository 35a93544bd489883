//go:build !linux

package width

import "errors"

var errNoPipe = errors.New("not a pipe that can be widened")

func widen(any) error { return errNoPipe }
