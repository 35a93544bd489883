//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	core "github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/multiformats/go-multiaddr"

	"github.com/lendcli/lend/gateway/door"
)

// transports, by the names that the tables use.
func transports() []string { return []string{"TCP+Noise", "TCP+TLS", "QUIC"} }

// newHost makes a host that speaks one transport, with the windows of the gateway.
func newHost(transport string, key crypto.PrivKey, listen ...string) (host.Host, error) {
	options := []libp2p.Option{
		libp2p.Identity(key), libp2p.ListenAddrStrings(listen...), libp2p.DisableRelay(), libp2p.Ping(false),
		libp2p.DisableMetrics(), libp2p.DisableIdentifyAddressDiscovery(), libp2p.ResourceManager(&network.NullResourceManager{}),
		libp2p.Muxer(yamux.ID, door.Muxer()),
	}
	switch transport {
	case "QUIC":
		options = append(options, libp2p.Transport(libp2pquic.NewTransport))
	case "TCP+TLS":
		options = append(options, libp2p.Transport(tcp.NewTCPTransport), libp2p.Security(libp2ptls.ID, libp2ptls.New))
	default:
		options = append(options, libp2p.Transport(tcp.NewTCPTransport), libp2p.Security(noise.ID, noise.New))
	}
	return libp2p.New(options...)
}

func newKey() (crypto.PrivKey, error) {
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	return key, err
}

const rawID core.ID = "/bench/raw/1"

// What a stream of the raw server does; a count of bytes follows.
const (
	opSend    = 's' // the server sends
	opReceive = 'r' // the server takes, and answers one byte
	opEcho    = 'e'
	rawWrite  = 65_507 // a full record of Noise less what frames it
)

// serveRaw is the other end, in a process of its own, until its input ends.
func serveRaw() error {
	addresses := map[string]string{}
	for _, t := range transports() {
		key, err := newKey()
		if err != nil {
			return err
		}
		listen := "/ip4/127.0.0.1/tcp/0"
		if t == "QUIC" {
			listen = "/ip4/127.0.0.1/udp/0/quic-v1"
		}
		h, err := newHost(t, key, listen)
		if err != nil {
			return err
		}
		defer func() { _ = h.Close() }()
		h.SetStreamHandler(rawID, func(s network.Stream) {
			defer func() { _ = s.Close() }()
			_ = answerRaw(s)
		})
		addresses[t] = fmt.Sprintf("%s/p2p/%s", h.Addrs()[0], h.ID())
	}
	if err := json.NewEncoder(os.Stdout).Encode(addresses); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func answerRaw(s network.Stream) error {
	var head [9]byte
	if _, err := io.ReadFull(s, head[:]); err != nil {
		return err
	}
	n := int64(binary.BigEndian.Uint64(head[1:]))
	switch head[0] {
	case opSend:
		return send(s, n)
	case opReceive:
		if err := receive(s, n); err != nil {
			return err
		}
		_, err := s.Write([]byte{1})
		return err
	default:
		copyAll(s, s)
		return nil
	}
}

func send(w io.Writer, n int64) error {
	b := make([]byte, rawWrite)
	for n > 0 {
		k, err := w.Write(b[:min(n, rawWrite)])
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	return nil
}

func receive(r io.Reader, n int64) error {
	b := make([]byte, 256<<10)
	for n > 0 {
		k, err := r.Read(b)
		n -= int64(k)
		if err != nil && n > 0 {
			return err
		}
	}
	return nil
}

// raw is a client of the raw server over one transport.
type raw struct {
	host host.Host
	peer peer.ID
}

// startRaw starts the server and connects over each transport.
func startRaw(ctx context.Context) (clients map[string]raw, pid int, stop func(), err error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-role", "raw")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, 0, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, 0, nil, err
	}
	clients = map[string]raw{}
	stop = func() {
		for _, c := range clients {
			_ = c.host.Close()
		}
		_ = in.Close()
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	addresses := map[string]string{}
	if err == nil {
		err = json.Unmarshal(line, &addresses)
	}
	for t, a := range addresses {
		if err == nil {
			clients[t], err = dialRaw(ctx, t, a)
		}
	}
	if err != nil {
		stop()
		return nil, 0, nil, fmt.Errorf("start the raw server: %w", err)
	}
	return clients, cmd.Process.Pid, stop, nil
}

func dialRaw(ctx context.Context, transport, address string) (raw, error) {
	key, err := newKey()
	if err != nil {
		return raw{}, err
	}
	h, err := newHost(transport, key)
	if err != nil {
		return raw{}, err
	}
	m, err := multiaddr.NewMultiaddr(address)
	if err != nil {
		return raw{}, err
	}
	to, err := peer.AddrInfoFromP2pAddr(m)
	if err != nil {
		return raw{}, err
	}
	return raw{h, to.ID}, h.Connect(ctx, *to)
}

func (r raw) open(ctx context.Context, op byte, n int64) (network.Stream, error) {
	s, err := r.host.NewStream(ctx, r.peer, rawID)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = s.Reset() }) // a case that hangs ends
	head := binary.BigEndian.AppendUint64([]byte{op}, uint64(n))
	if _, err := s.Write(head); err != nil {
		_ = s.Reset()
		return nil, err
	}
	return s, nil
}

// output and input move n bytes on a stream, with no process at its end.
func (r raw) output(ctx context.Context, n int64) error {
	s, err := r.open(ctx, opSend, n)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	return receive(s, n)
}

func (r raw) input(ctx context.Context, n int64) error {
	s, err := r.open(ctx, opReceive, n)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if err := send(s, n); err != nil {
		return err
	}
	_, err = io.ReadFull(s, make([]byte, 1))
	return err
}

// roundTrip measures an echo on an open stream.
func (r raw) roundTrip(ctx context.Context, n int) (Sample, error) {
	s, err := r.open(ctx, opEcho, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	line := make([]byte, 64)
	return latency(ctx, n, func(context.Context) error {
		if _, err := s.Write(line); err != nil {
			return err
		}
		_, err := io.ReadFull(s, line)
		return err
	})
}
