//go:build !unix

package socket

import (
	"errors"
	"net"
	"os"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/wire"
)

var errUnsupported = errors.New("this system has no sockets that the broker could use")

type descriptors struct{}

func (*descriptors) streams() broker.Streams { return broker.Streams{} }
func (*descriptors) stop()                   {}
func (*descriptors) close() error            { return nil }

func readFirst(net.Conn) (wire.Kind, []byte, *descriptors, error) { return 0, nil, nil, errUnsupported }

func writeFirst(net.Conn, []byte, [3]*os.File) error { return errUnsupported }
