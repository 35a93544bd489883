//go:build !unix

package admin

import (
	"context"
	"errors"
	"net"
)

var errUnsupported = errors.New("this system tells no peer credentials")

func checkDirectory(string) error { return errUnsupported }

func listenPrivate(context.Context, string) (net.Listener, error) { return nil, errUnsupported }
