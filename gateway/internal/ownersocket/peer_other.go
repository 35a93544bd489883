//go:build !linux && !darwin

package ownersocket

import (
	"errors"
	"net"
)

// PeerOf fails: this system tells no peer credentials.
func PeerOf(net.Conn) (Peer, error) {
	return Peer{}, errors.New("this system tells no peer credentials")
}
