//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
)

// middle stands between a caller and a gateway: it passes everything on, keeps a copy,
// and changes what it is told to change.
type middle struct {
	to     string
	listen string

	mu     sync.Mutex // guards what follows
	seen   bytes.Buffer
	flipAt int // the byte from the gateway at which a bit is turned, once; 0: none
	back   int // bytes from the gateway
}

// pass takes a copy and may turn a bit; b is changed in place.
func (m *middle) pass(b []byte, fromGateway bool) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen.Write(b)
	if fromGateway {
		if at := m.flipAt - m.back; m.flipAt > 0 && at < len(b) {
			b[max(at, 0)] ^= 1
			m.flipAt = 0
		}
		m.back += len(b)
	}
	return b
}

func (m *middle) copied() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.seen.Bytes())
}

// stand begins to listen for the address of a gateway, until the test ends.
func stand(t *testing.T, transport, to string, flipAt int) *middle {
	t.Helper()
	m := &middle{to: to, flipAt: flipAt}
	if transport == "tcp" {
		m.tcp(t)
	} else {
		m.udp(t)
	}
	return m
}

func (m *middle) tcp(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m.listen = l.Addr().String()
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	ends := make(chan struct{})
	t.Cleanup(func() { close(ends) }) // before the other
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", m.to)
			if err != nil {
				_ = from.Close()
				continue
			}
			all.Go(func() { m.pipe(from, to, false) })
			all.Go(func() { m.pipe(to, from, true) })
			all.Go(func() { <-ends; _ = from.Close(); _ = to.Close() })
		}
	})
}

func (m *middle) pipe(from, to net.Conn, fromGateway bool) {
	defer func() { _ = from.Close(); _ = to.Close() }()
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if _, err := to.Write(m.pass(b[:n], fromGateway)); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (m *middle) udp(t *testing.T) {
	t.Helper()
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	m.listen = l.LocalAddr().String()
	var all sync.WaitGroup
	var mu sync.Mutex
	peers := map[string]net.Conn{}
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range peers {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	all.Go(func() {
		b := make([]byte, 64<<10)
		for {
			n, from, err := l.ReadFrom(b)
			if err != nil {
				return
			}
			mu.Lock()
			to := peers[from.String()]
			if to == nil {
				if to, err = net.Dial("udp", m.to); err != nil {
					mu.Unlock()
					continue
				}
				peers[from.String()] = to
				all.Go(func() {
					b := make([]byte, 64<<10)
					for {
						n, err := to.Read(b)
						if errors.Is(err, net.ErrClosed) {
							return
						}
						_, _ = l.WriteTo(m.pass(b[:n], true), from)
					}
				})
			}
			mu.Unlock()
			_, _ = to.Write(m.pass(b[:n], false))
		}
	})
}

// through writes a lease whose only address is that of m.
func (s *served) through(m *middle, transport string, f lease.File) string {
	s.t.Helper()
	_, port, err := net.SplitHostPort(m.listen)
	require.NoError(s.t, err)
	f = over(f, transports()[transport])
	kind := map[string]string{"tcp": "/tcp/", "quic": "/udp/"}[transport]
	f.Addresses = []string{regexp.MustCompile(kind+`\d+`).ReplaceAllString(f.Addresses[0], kind+port)}
	text, err := lease.Armor(f.Chain, f.Addresses, lease.AddressRule{AllowLocal: true})
	require.NoError(s.t, err)
	file := filepath.Join(s.t.TempDir(), "middle.lease")
	require.NoError(s.t, os.WriteFile(file, text, 0o600))
	return file
}

// address is where the gateway listens.
func (s *served) address(t *testing.T, transport string, f lease.File) string {
	t.Helper()
	m := regexp.MustCompile(`/ip4/([\d.]+)/(?:tcp|udp)/(\d+)`).FindStringSubmatch(over(f, transports()[transport]).Addresses[0])
	require.NotNil(t, m)
	return net.JoinHostPort(m[1], m[2])
}

// call runs lend run and returns its exit status and its outputs.
func (s *served) call(file, in string, args ...string) (int, string, string) {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := s.command(s.vars["CALLER"], append([]string{"run", "--lease", file, "fx"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &stdout, &stderr
	err := cmd.Run()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		require.NoError(s.t, err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// TestLinkIsSealed: who is between the two, as a relay would be, learns nothing that is
// said, and cannot change it.
func TestLinkIsSealed(t *testing.T) {
	s := serve(t)
	for transport := range transports() {
		t.Run(transport+"/reads", func(t *testing.T) {
			m := stand(t, transport, s.address(t, transport, s.file), 0)
			file := s.through(m, transport, s.file)
			var birds aviary
			said := newCanary()
			birds.add("input", []byte(said))
			birds.add("lease", s.file.Chain[0][len(s.file.Chain[0])-64:])
			birds.form("argument", []byte("onewordthatisonlyhere"), pieceSize)
			code, out, errs := s.call(file, said, "cat")
			require.Zero(t, code, errs)
			require.Equal(t, said, out)
			code, _, errs = s.call(file, "", "args", "--mark", "onewordthatisonlyhere")
			require.Zero(t, code, errs)
			copied := m.copied()
			require.Greater(t, len(copied), 2000)
			require.Empty(t, birds.in(copied))
		})
		t.Run(transport+"/changes", func(t *testing.T) {
			const size = 200_000
			for _, at := range []int{1, 600, 5_000, 60_000} { // in the handshake, and in what follows
				m := stand(t, transport, s.address(t, transport, s.file), at)
				code, out, errs := s.call(s.through(m, transport, s.file), "", "print", "200000")
				if code == 0 {
					require.Len(t, out, size)
					require.Equal(t, string(pattern(size)), out)
				}
				require.Contains(t, []int{0, 125, 255}, code, "at %d: %s", at, errs)
			}
		})
	}
	t.Run("impostor", func(t *testing.T) {
		before := s.starts()
		other := serve(t) // a gateway with a key of its own, where the lease's should be
		for transport := range transports() {
			m := stand(t, transport, other.address(t, transport, other.file), 0)
			code, out, errs := s.call(s.through(m, transport, s.file), "secret input", "cat")
			require.Equal(t, 125, code, errs)
			require.Empty(t, out)
			require.NotEmpty(t, m.copied())
		}
		require.Equal(t, before, s.starts())
		require.Zero(t, other.starts())
	})
}

// pattern is what fx print N prints.
func pattern(n int) []byte {
	return bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuvwxyz\n"), n/37+1)[:n]
}
