//go:build !unix

package ownersocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
)

var errUnsupported = errors.New("this system tells no peer credentials")

// Check finds no socket here.
func Check(what, _ string) error {
	return fmt.Errorf("look at the %s: %w: %w", what, errUnsupported, os.ErrNotExist)
}

func checkDirectory(what, _ string) error { return fmt.Errorf("%s: %w", what, errUnsupported) }

func listenPrivate(string) (net.Listener, error) { return nil, errUnsupported }

func lockDirectory(context.Context, string) (func(), error) { return nil, errUnsupported }
