//go:build !unix

package socket

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/wire"
)

var errUnsupported = errors.New("this system has no sockets that the broker could use")

func checkDirectory(string) error { return errUnsupported }

func checkSocket(string) error { return ErrNotRunning }

func listenPrivate(context.Context, string) (net.Listener, error) { return nil, errUnsupported }

func removeStale(context.Context, string) error { return errUnsupported }

type descriptors struct{}

func (*descriptors) streams() broker.Streams { return broker.Streams{} }
func (*descriptors) stop()                   {}
func (*descriptors) close() error            { return nil }

func readFirst(net.Conn) (wire.Kind, []byte, *descriptors, error) { return 0, nil, nil, errUnsupported }

func writeFirst(net.Conn, []byte, [3]*os.File) error { return errUnsupported }
