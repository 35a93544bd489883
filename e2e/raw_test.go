package e2e

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// raw is a peer that says to the gateway whatever a test wants.
type raw struct {
	t    *testing.T
	host host.Host
	to   peer.ID
}

// dial connects with a machine's identity over the transport of the lease's addresses.
func (s *served) dial(t *testing.T, machine string, f lease.File) *raw {
	t.Helper()
	key, err := ownerfile.LoadKey(filepath.Join(s.vars[machine], "identity.pem"))
	require.NoError(t, err)
	priv, err := crypto.UnmarshalEd25519PrivateKey(key)
	require.NoError(t, err)
	h, err := libp2p.New(libp2p.Identity(priv), libp2p.NoListenAddrs, libp2p.DisableRelay(), libp2p.DisableMetrics())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	to, err := peer.AddrInfoFromP2pAddr(multiaddr.StringCast(f.Addresses[0]))
	require.NoError(t, err)
	require.NoError(t, h.Connect(t.Context(), *to))
	return &raw{t, h, to.ID}
}

// say writes bytes to a new run stream and returns all that comes back.
func (r *raw) say(b []byte) []byte {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	st, err := r.host.NewStream(network.WithNoDial(ctx, "connected"), r.to, protocol.RunID)
	require.NoError(r.t, err)
	require.NoError(r.t, st.SetDeadline(time.Now().Add(patience)))
	_, err = st.Write(b)
	require.NoError(r.t, err)
	got, _ := io.ReadAll(io.LimitReader(st, 64<<10)) // an answer, then the end or a reset
	_ = st.Reset()
	return got
}

// refusal reads the one frame of an answer.
func (r *raw) refusal(answer []byte) *protocol.Refused {
	r.t.Helper()
	in := protocol.NewReader(bytes.NewReader(answer), protocol.Caller)
	f, err := in.Read()
	require.NoError(r.t, err)
	refused, ok := f.(*protocol.Refused)
	require.True(r.t, ok, "%T", f)
	return refused
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// startOf is a request that the gateway accepts, if its lease is right.
func startOf(f lease.File, operation, connector, command string, args ...string) []byte {
	var b bytes.Buffer
	err := protocol.NewWriter(&b).WriteFrame(&protocol.Start{
		Operation: must(name.ParseOperationID(operation)), Lease: f.Chain, Connector: must(name.ParseConnectorKey(connector)),
		Version: must(name.ParseVersion("1.0.0")), Command: must(name.ParseCommand(command)), Arguments: args,
	})
	if err != nil {
		panic(err)
	}
	return b.Bytes()
}

// inStart puts fields into the Start message of a frame.
func inStart(frame, fields []byte) []byte {
	_, n := protowire.ConsumeVarint(frame)
	number, kind, m := protowire.ConsumeTag(frame[n:])
	start, _ := protowire.ConsumeBytes(frame[n+m:])
	start = append(bytes.Clone(start), fields...)
	return enframe(protowire.AppendBytes(protowire.AppendTag(nil, number, kind), start))
}

// besideStart puts fields after the Start message of a frame.
func besideStart(frame, fields []byte) []byte {
	body, _ := protowire.ConsumeBytes(frame)
	return enframe(append(bytes.Clone(body), fields...))
}

func enframe(body []byte) []byte { return protowire.AppendBytes(nil, body) }

func text(number protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), s)
}

// TestNoFieldForWhatIsLocal: a frame with a path, an environment, a working
// directory, a digest or a generation in it breaks the protocol.
func TestNoFieldForWhatIsLocal(t *testing.T) {
	s := serve(t)
	generation := protowire.AppendVarint(protowire.AppendTag(nil, 8, protowire.VarintType), 1)
	extras := map[string][]byte{
		"path": text(8, "/bin/sh"), "environment": text(9, "LD_PRELOAD=/tmp/x.so"), "directory": text(10, "/root"),
		"digest": text(11, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"), "generation": generation,
		"far number": text(536870911, "x"), "empty": text(100, ""),
	}
	for transport, part := range transports() {
		t.Run(transport, func(t *testing.T) {
			f := over(s.file, part)
			r := s.dial(t, "CALLER", f)
			for what, extra := range extras {
				for place, put := range map[string]func(frame, fields []byte) []byte{"in": inStart, "beside": besideStart} {
					frame := put(startOf(f, "op-raw-"+transport+"-000001", "fx", "args"), extra)
					answer := r.say(frame)
					require.Equal(t, protocol.CodeProtocolViolation, r.refusal(answer).Code, "%s %s", what, place)
				}
			}
			good := startOf(f, "op-raw-"+transport+"-000002", "fx", "args")
			for what, b := range map[string][]byte{
				"huge":         protowire.AppendVarint(nil, 1<<30),
				"long varint":  append([]byte{good[0] | 0x80, good[1] | 0x80, 0x00}, good[2:]...),
				"not protobuf": enframe([]byte("GET / HTTP/1.1\r\n\r\n")),
				"exit first":   frameOf(&protocol.Exit{}),
				"data first":   frameOf(&protocol.Data{Payload: []byte("x")}),
				"ack first":    frameOf(&protocol.ExitAck{}),
			} {
				require.Equal(t, protocol.CodeProtocolViolation, r.refusal(r.say(b)).Code, what)
			}
			require.Zero(t, s.starts())
		})
	}
	for transport, part := range transports() {
		f := over(s.file, part)
		c := s.client("CALLER", f)
		require.NoError(t, c.Command(t.Context(), "fx", "args").Run(), "%s works afterwards", transport)
	}
	require.Equal(t, 2, s.starts())
}

func frameOf(f protocol.Frame) []byte {
	var b bytes.Buffer
	if err := protocol.NewWriter(&b).WriteFrame(f); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// signed makes a lease like f's, changed and signed by the owner key of a machine.
func (s *served) signed(t *testing.T, machine string, f lease.File, change func(*lease.Lease)) lease.File {
	t.Helper()
	key, err := ownerfile.LoadKey(filepath.Join(s.vars[machine], "owner.pem"))
	require.NoError(t, err)
	priv, err := crypto.UnmarshalEd25519PrivateKey(key)
	require.NoError(t, err)
	l := f.Lease
	l.ID, l.Issuer = lease.NewID(), must(name.ParsePeerID(s.vars[machine+"_KEY"]))
	change(&l)
	envelope, err := lease.Seal(l, priv)
	require.NoError(t, err)
	return lease.File{Chain: [][]byte{envelope}, Lease: l, Addresses: f.Addresses}
}

// TestLeasesThatAreNotRight sends them past the client's own check. Those that do
// not verify for this holder and gateway are answered with the same bytes,
// whatever else they ask for; the others with the reason.
func TestLeasesThatAreNotRight(t *testing.T) {
	s := serve(t)
	altered := func(f lease.File, at int) lease.File {
		f.Chain = [][]byte{bytes.Clone(f.Chain[0])}
		f.Chain[0][at] ^= 1
		return f
	}
	same := func(*lease.Lease) {}
	for transport, part := range transports() {
		t.Run(transport, func(t *testing.T) {
			f := over(s.file, part)
			size := len(f.Chain[0])
			uniform := map[string]lease.File{
				"another holder":         over(s.issue("other", "args"), part),
				"another gateway":        s.signed(t, "OWNER", f, func(l *lease.Lease) { l.Gateway = must(name.ParsePeerID(s.vars["OTHER_ID"])) }),
				"untrusted issuer":       s.signed(t, "STRANGER", f, same),
				"signed by the holder":   s.signed(t, "CALLER", f, same),
				"the first byte altered": altered(f, 0),
				"a byte in it altered":   altered(f, size/2),
				"a byte of the grant":    altered(f, bytes.Index(f.Chain[0], []byte("args"))),
				"the last byte altered":  altered(f, size-1),
				"cut off":                {Chain: [][]byte{f.Chain[0][:size-1]}},
				"more behind it":         {Chain: [][]byte{append(bytes.Clone(f.Chain[0]), 0)}},
				"not a lease":            {Chain: [][]byte{[]byte("lease")}},
				"expired and untrusted":  s.signed(t, "STRANGER", f, func(l *lease.Lease) { past(l) }),
				"expired for another":    s.signed(t, "OWNER", f, func(l *lease.Lease) { past(l); l.Holder = must(name.ParsePeerID(s.vars["OTHER_ID"])) }),
				"for another, elsewhere": s.signed(t, "OTHER", f, func(l *lease.Lease) { l.Holder = l.Issuer }),
			}
			r := s.dial(t, "CALLER", f)
			var first []byte
			for what, bad := range uniform {
				for i, ask := range [][]string{{"fx", "args"}, {"fx", "hidden"}, {"no-such", "thing"}} {
					answer := r.say(startOf(bad, "op-lease-"+transport+"-00001", ask[0], ask[1], "--bad=1"))
					refused := r.refusal(answer)
					require.Equal(t, protocol.CodeDenied, refused.Code, "%s %d", what, i)
					if first == nil {
						first = answer
					}
					require.Equal(t, first, answer, "%s %d", what, i)
				}
			}
			precise := map[string]struct {
				lease lease.File
				code  protocol.Code
			}{
				"expired":       {s.signed(t, "OWNER", f, past), protocol.CodeLeaseExpired},
				"not yet valid": {s.signed(t, "OWNER", f, func(l *lease.Lease) { l.NotBefore = l.NotAfter.Add(-time.Minute) }), protocol.CodeLeaseNotYetValid},
				"too long": {s.signed(t, "OWNER", f, func(l *lease.Lease) {
					l.NotAfter = l.IssuedAt.Add(2 * time.Hour)
				}), protocol.CodeLeaseTooLong},
			}
			for what, c := range precise {
				answer := r.say(startOf(c.lease, "op-lease-"+transport+"-00002", "fx", "args"))
				require.Equal(t, c.code, r.refusal(answer).Code, what)
			}
			for what, second := range map[string]lease.File{"twice the same": f, "the second untrusted": s.signed(t, "STRANGER", f, same)} {
				chain := lease.File{Chain: [][]byte{f.Chain[0], second.Chain[0]}}
				answer := r.say(startOf(chain, "op-lease-"+transport+"-00003", "fx", "args"))
				require.Contains(t, []protocol.Code{protocol.CodeDenied, protocol.CodeLeaseDelegation}, r.refusal(answer).Code, what)
			}
			require.Zero(t, s.starts())
		})
	}
}

func past(l *lease.Lease) {
	l.IssuedAt = l.IssuedAt.Add(-2 * time.Hour)
	l.NotBefore = l.IssuedAt
	l.NotAfter = l.IssuedAt.Add(10 * time.Minute)
}

// TestStrangers: a peer that the policy does not admit gets no frame, whatever it holds.
func TestStrangers(t *testing.T) {
	s := serve(t)
	for transport, part := range transports() {
		t.Run(transport, func(t *testing.T) {
			f := over(s.file, part)
			c := s.client("STRANGER", f, func(c *client.Config) { c.SkipLeaseCheck, c.Wait = true, -1 })
			err := c.Command(t.Context(), "fx", "args").Run()
			require.Error(t, err)
			var refused *client.RefusedError
			require.NotErrorAs(t, err, &refused)
			require.Equal(t, 125, client.ExitStatus(err))
			require.Zero(t, s.starts())
		})
	}
}
