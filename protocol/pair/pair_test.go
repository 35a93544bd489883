package pair

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/multiformats/go-multiaddr"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/protocol/name"
)

var update = flag.Bool("update", false, "write the vectors")

const vectors = "testdata/vectors.txt"

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func address(s string) multiaddr.Multiaddr { return must(multiaddr.NewMultiaddr(s)) }

func peerOf(b byte) name.PeerID { return must(name.PeerIDFromKey(bytes.Repeat([]byte{b}, 32))) }

func fill(b byte) (out [32]byte) { return [32]byte(bytes.Repeat([]byte{b}, 32)) }

func link() Link {
	return Link{Owner: peerOf(1), Secret: Secret(bytes.Repeat([]byte{9}, SecretSize)), Addresses: []multiaddr.Multiaddr{
		address("/ip4/192.0.2.7/tcp/5363"), address("/ip4/192.0.2.7/udp/5363/quic-v1"), address("/dns4/lend.example.org/tcp/5363"),
	}}
}

// byHand writes a link without the code under test.
func byHand(secret, key []byte, addresses ...[]byte) string {
	b := append(append(append([]byte{}, secret...), key...), byte(len(addresses)))
	for _, a := range addresses {
		b = append(append(b, byte(len(a))), a...)
	}
	return sealed(b)
}

func sealed(b []byte) string {
	sum := sha256.Sum256(append([]byte("lend pair link 1\x00"), b...))
	return "lend-pair:1:" + base64.RawURLEncoding.EncodeToString(append(b, sum[:4]...))
}

// spec: PAIR-1
func TestLink(t *testing.T) {
	t.Parallel()
	l := link()
	text, err := l.Text()
	require.NoError(t, err)
	key, secret := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{9}, 16)
	ip := []byte{4, 192, 0, 2, 7, 6, 0x14, 0xf3}
	require.Equal(t, byHand(secret, key, ip, l.Addresses[1].Bytes(), l.Addresses[2].Bytes()), text)
	back, err := ParseLink("\n " + text + "\r\n")
	require.NoError(t, err)
	require.Equal(t, l, back)

	for title, c := range map[string]struct {
		text string
		want error
	}{
		"nothing":            {"", ErrNotLink},
		"another word":       {"lend:1:AAAA", ErrNotLink},
		"too long":           {"lend-pair:1:" + strings.Repeat("A", MaxLink), ErrNotLink},
		"much too long":      {strings.Repeat(" ", 2*MaxLink) + text, ErrNotLink},
		"another version":    {"lend-pair:2:" + text[12:], ErrLinkVersion},
		"cut":                {text[:len(text)-1], ErrLinkCut},
		"cut more":           {text[:40], ErrLinkCut},
		"padded":             {text + "=", ErrLinkCut},
		"broken in lines":    {text[:40] + "\n" + text[40:], ErrLinkCut},
		"a byte after":       {sealed(append(must(base64.RawURLEncoding.DecodeString(byHand(secret, key, ip)[12:])), 0)), ErrLinkCut},
		"no address":         {byHand(secret, key), ErrLinkCut},
		"nine addresses":     {byHand(secret, key, nine()...), ErrLinkCut},
		"twice":              {byHand(secret, key, ip, ip), ErrLinkCut},
		"an address cut":     {sealed(append(append(append([]byte{}, secret...), key...), 1, 9, 4)), ErrLinkCut},
		"its length alone":   {sealed(append(append(append([]byte{}, secret...), key...), 1)), ErrLinkCut},
		"no multiaddr":       {byHand(secret, key, []byte{4, 1}), ErrLinkCut},
		"an empty address":   {byHand(secret, key, nil), ErrLinkCut},
		"with a peer ID":     {byHand(secret, key, address("/ip4/192.0.2.7/tcp/5363/p2p/"+peerOf(2).String()).Bytes()), ErrLinkCut},
		"a relay":            {byHand(secret, key, address("/ip4/192.0.2.7/tcp/1/p2p-circuit").Bytes()), ErrLinkCut},
		"a socket":           {byHand(secret, key, address("/unix/tmp/x").Bytes()), ErrLinkCut},
		"a long varint":      {byHand(secret, key, []byte{0x84, 0x00, 192, 0, 2, 7, 6, 0x14, 0xf3}), ErrLinkCut},
		"websockets":         {byHand(secret, key, address("/ip4/192.0.2.7/tcp/443/wss").Bytes()), ErrLinkCut},
		"UDP alone":          {byHand(secret, key, address("/ip4/192.0.2.7/udp/443").Bytes()), ErrLinkCut},
		"an address alone":   {byHand(secret, key, address("/ip4/192.0.2.7").Bytes()), ErrLinkCut},
		"another resolver":   {byHand(secret, key, address("/dnsaddr/lend.example.org/tcp/1").Bytes()), ErrLinkCut},
		"an empty name":      {byHand(secret, key, []byte{0x36, 0, 6, 0, 1}), ErrLinkCut},
		"a look-alike":       {byHand(secret, key, address("/dns4/lend.еxample.org/tcp/1").Bytes()), ErrLinkCut},
		"a long name":        {byHand(secret, key, address("/dns4/"+strings.Repeat("a", 95)+"/tcp/1").Bytes()), ErrLinkCut},
		"an escape":          {byHand(secret, key, address("/dns4/a\x1b[2Jb/tcp/1").Bytes()), ErrLinkCut},
		"unfit spare bits":   {text[:len(text)-1] + "B", ErrLinkCut},
		"the other alphabet": {strings.NewReplacer("_", "/", "-", "+").Replace(byHand(bytes.Repeat([]byte{0xfb, 0xff}, 8), key, ip)), ErrNotLink},
	} {
		got, err := ParseLink(c.text)
		require.ErrorIs(t, err, c.want, title)
		require.Empty(t, got, title)
		if len(c.text) > 50 {
			require.NotContains(t, err.Error(), c.text[12:40], title)
		}
	}
	for i := range text { // any mistake in typing
		b := []byte(text)
		if b[i] = 'A'; text[i] == 'A' {
			b[i] = 'B'
		}
		_, err := ParseLink(string(b))
		require.Error(t, err, i)
	}
}

func nine() [][]byte { return many(9) }

func many(n int) (out [][]byte) {
	for p := range n {
		out = append(out, address(fmt.Sprintf("/ip4/192.0.2.7/tcp/%d", p+1)).Bytes())
	}
	return out
}

func TestLinkThatCannotBe(t *testing.T) {
	t.Parallel()
	for title, edit := range map[string]func(*Link){
		"no owner":   func(l *Link) { l.Owner = name.PeerID{} },
		"no address": func(l *Link) { l.Addresses = nil },
		"too many": func(l *Link) {
			for p := range 9 {
				l.Addresses = append(l.Addresses, address(fmt.Sprintf("/ip4/192.0.2.7/tcp/%d", p+1)))
			}
		},
		"twice":      func(l *Link) { l.Addresses = append(l.Addresses, l.Addresses[0]) },
		"nil":        func(l *Link) { l.Addresses[0] = nil },
		"not an IP":  func(l *Link) { l.Addresses[0] = address("/unix/tmp/x") },
		"a peer too": func(l *Link) { l.Addresses[0] = address("/ip4/192.0.2.7/tcp/1/p2p/" + peerOf(2).String()) },
	} {
		l := link()
		edit(&l)
		_, err := l.Text()
		require.Error(t, err, title)
	}
	l := link()
	l.Addresses = nil
	for p := range MaxAddresses { // the longest
		l.Addresses = append(l.Addresses, address(fmt.Sprintf("/dns4/%s%d.example.org/udp/65535/quic-v1", strings.Repeat("a", 60), p)))
	}
	text, err := l.Text()
	require.NoError(t, err)
	require.LessOrEqual(t, len(text), MaxLink)
	_, err = ParseLink(text)
	require.NoError(t, err)
}

// TestSecretShowsItselfNowhere: by accident, in a log line or an error.
func TestSecretShowsItselfNowhere(t *testing.T) {
	t.Parallel()
	l := link()
	l.Secret = Secret([]byte("0123456789abcdef"))
	for _, s := range []string{
		fmt.Sprint(l), fmt.Sprintf("%v %+v %#v %s %q", l, l, l, l, l), fmt.Sprintf("%v %#v %x %s", l.Secret, l.Secret, l.Secret, l.Secret),
		fmt.Sprint(&l), fmt.Sprint(struct{ L Link }{l}), fmt.Sprint([]Secret{l.Secret}),
	} {
		require.NotContains(t, s, "0123456789abcdef")
		require.NotContains(t, s, "0x30")
		require.NotContains(t, s, "48 49")
		require.NotContains(t, s, hex.EncodeToString(l.Secret[:]))
	}
}

// parts is a transcript by hand.
func parts(fields ...[]byte) []byte {
	var b []byte
	for _, f := range fields {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(f))), f...)
	}
	return b
}

// spec: PAIR-2, PAIR-3, PAIR-4 and PAIR-5
func TestProofs(t *testing.T) {
	t.Parallel()
	p := Parties{Owner: peerOf(1), Caller: peerOf(2)}
	owner, caller := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	secret, called := link().Secret, must(name.ParseLabel("laptop"))
	mine, theirs := Nonce(fill(3)), Nonce(fill(4))

	sum := sha256.Sum256(parts([]byte("lend pair 1 commitment"), owner, caller, mine[:]))
	c := p.Commit(mine)
	require.Equal(t, Commitment(sum), c)
	mac := func(fields ...[]byte) Proof {
		h := hmac.New(sha256.New, secret[:])
		h.Write(parts(fields...))
		return Proof(h.Sum(nil))
	}
	require.Equal(t, mac([]byte("lend pair 1 caller"), owner, caller, c[:], []byte("laptop")), p.CallerProof(secret, c, called))
	require.Equal(t, mac([]byte("lend pair 1 owner"), owner, caller, c[:], []byte("laptop"), theirs[:]), p.OwnerProof(secret, c, called, theirs))
	sum = sha256.Sum256(parts([]byte("lend pair 1 digits"), owner, caller, theirs[:], mine[:]))
	require.Equal(t, fmt.Sprintf("%06d", binary.BigEndian.Uint64(sum[:8])%1000000), p.CheckDigits(theirs, mine))

	// Whatever differs at one end is seen at the other.
	q := Parties{Owner: peerOf(1), Caller: peerOf(5)}
	require.False(t, p.CallerProof(secret, c, called).Equal(q.CallerProof(secret, c, called)), "another caller")
	q = Parties{Owner: peerOf(5), Caller: peerOf(2)}
	require.False(t, p.CallerProof(secret, c, called).Equal(q.CallerProof(secret, c, called)), "another owner")
	require.False(t, p.CallerProof(secret, c, called).Equal(p.CallerProof(Secret{}, c, called)), "another secret")
	require.False(t, p.CallerProof(secret, c, called).Equal(p.CallerProof(secret, Commitment{}, called)), "another commitment")
	require.False(t, p.CallerProof(secret, c, called).Equal(p.CallerProof(secret, c, name.Label{})), "another name")
	require.False(t, p.OwnerProof(secret, c, called, theirs).Equal(p.OwnerProof(secret, c, called, mine)), "another nonce")
	require.False(t, p.OwnerProof(secret, c, called, theirs).Equal(p.CallerProof(secret, c, called)), "the other end's")
	require.True(t, c.Equal(p.Commit(mine)))
	require.False(t, c.Equal(p.Commit(theirs)))
	require.NotEqual(t, p.CheckDigits(theirs, mine), p.CheckDigits(mine, theirs))
	require.NotEqual(t, p.CheckDigits(theirs, mine), Parties{Owner: p.Caller, Caller: p.Owner}.CheckDigits(theirs, mine))
}

func frames() map[string]Frame {
	return map[string]Frame{
		"hello":         Hello{Commitment(fill(1)), Proof(fill(2)), must(name.ParseLabel("laptop"))},
		"hello-unnamed": Hello{Commitment: Commitment(fill(1)), Proof: Proof(fill(2))},
		"answer":        Answer{Nonce(fill(3)), Proof(fill(4))},
		"reveal":        Reveal{Nonce(fill(5))},
		"paired":        Outcome{Paired, must(name.ParseLabel("laptop"))},
		"refused":       Outcome{Result: Refused},
		"unknown":       Outcome{Result: Unknown},
	}
}

// TestVectors keeps testdata/vectors.txt what the code says: a change is a change of the
// protocol.
func TestVectors(t *testing.T) {
	t.Parallel()
	p, l := Parties{Owner: peerOf(1), Caller: peerOf(2)}, link()
	owner, caller, called := Nonce(fill(4)), Nonce(fill(3)), must(name.ParseLabel("laptop"))
	c := p.Commit(caller)
	a, b := p.CallerProof(l.Secret, c, called), p.OwnerProof(l.Secret, c, called, owner)
	var out bytes.Buffer
	out.WriteString("# Keys 01… (owner) and 02… (caller), secret 09…, nonces 04… (owner) and 03… (caller), name laptop.\n")
	fmt.Fprintf(&out, "link %s\ncommitment %x\ncaller-proof %x\nowner-proof %x\ndigits %s\n", must(l.Text()), c, a, b, p.CheckDigits(owner, caller))
	for _, n := range []string{"hello", "hello-unnamed", "answer", "reveal", "paired", "refused", "unknown"} {
		var frame bytes.Buffer
		require.NoError(t, Write(&frame, frames()[n]))
		fmt.Fprintf(&out, "frame-%s %x\n", n, frame.Bytes())
	}
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o700))
		require.NoError(t, os.WriteFile(vectors, out.Bytes(), 0o600))
	}
	want, err := os.ReadFile(vectors)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String())
}

// spec: PAIR-6
func TestFrames(t *testing.T) {
	t.Parallel()
	for n, f := range frames() {
		var b bytes.Buffer
		require.NoError(t, Write(&b, f))
		require.LessOrEqual(t, b.Len(), MaxFrame)
		whole := bytes.Clone(b.Bytes())
		got, err := Read(iotest.OneByteReader(io.MultiReader(&b, strings.NewReader("rest"))))
		require.NoError(t, err, n)
		require.Equal(t, f, got, n)
		for cut := range whole {
			_, err := Read(bytes.NewReader(whole[:cut]))
			want := io.ErrUnexpectedEOF
			if cut == 0 {
				want = io.EOF
			}
			require.ErrorIs(t, err, want, "%s cut at %d", n, cut)
		}
	}
	broken := errors.New("broken")
	_, err := Read(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
}

func TestWhatIsNoFrame(t *testing.T) {
	t.Parallel()
	nonce := strings.Repeat("05", 32)
	for title, text := range map[string]string{
		"empty":                "00",
		"a long length":        "a400" + "1a220a20" + nonce, // of 36, in two bytes and one too many bits
		"a length of 513":      "8104" + strings.Repeat("00", 513),
		"a length without end": "ffffff",
		"not minimal":          "8000",
		"no message":           "02ffff",
		"no part":              "021a00",
		"an unknown field":     "2a" + "1a220a20" + nonce + "280128012801",
		"unknown inside":       "26" + "1a240a20" + nonce + "1001",
		"a short nonce":        "23" + "1a210a1f" + nonce[2:],
		"a long nonce":         "25" + "1a230a21" + nonce + "05",
		"a short commitment":   "26" + "0a240a00" + "1220" + nonce,
		"a short proof":        "26" + "0a240a20" + nonce + "1200",
		"an answer's nonce":    "26" + "12240a0012" + "20" + nonce,
		"an answer, short":     "26" + "12240a20" + nonce + "1200",
		"a bad name":           "4b" + "0a490a20" + nonce + "1220" + nonce + "1a032f2e2e",
		"two parts":            "28" + "1a220a20" + nonce + "22020802",
		"no result":            "022200",
		"result 10":            "0422020" + "80a",
		"a result below":       "0d" + "220b08ffffffffffffffffff01",
		"paired without name":  "0422020801",
		"refused with name":    "08220608021202" + "6161",
		"a default spelt out":  "0622040802" + "1200",
	} {
		b, err := hex.DecodeString(text)
		require.NoError(t, err, title)
		f, err := Read(bytes.NewReader(b))
		require.ErrorIs(t, err, ErrViolation, title)
		require.Nil(t, f, title)
	}
}

// TestFramesComeBack: any frame that can be written is read as it was.
func TestFramesComeBack(t *testing.T) {
	t.Parallel()
	block := rapid.SliceOfN(rapid.Byte(), 32, 32)
	label := rapid.StringMatching(`([A-Za-z0-9][A-Za-z0-9._-]{0,63})?`)
	rapid.Check(t, func(t *rapid.T) {
		var called name.Label
		if s := label.Draw(t, "name"); s != "" {
			called = must(name.ParseLabel(s))
		}
		x, y := [32]byte(block.Draw(t, "x")), [32]byte(block.Draw(t, "y"))
		for _, f := range []Frame{Hello{x, y, called}, Answer{x, y}, Reveal{x}} {
			var b bytes.Buffer
			require.NoError(t, Write(&b, f))
			got, err := Read(&b)
			require.NoError(t, err)
			require.Equal(t, f, got)
			require.Zero(t, b.Len())
		}
	})
}

func TestBrokenWriter(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	require.NoError(t, r.Close())
	require.Error(t, Write(w, Reveal{}))
}

func FuzzParseLink(f *testing.F) {
	text, err := link().Text()
	require.NoError(f, err)
	f.Add(text)
	f.Add("lend-pair:1:")
	f.Add(byHand(make([]byte, 16), make([]byte, 32), []byte{4, 1, 2, 3, 4, 6, 0, 1}))
	f.Fuzz(func(t *testing.T, s string) {
		l, err := ParseLink(s)
		if err != nil {
			require.Empty(t, l)
			return
		}
		again, err := l.Text()
		require.NoError(t, err)
		require.Equal(t, strings.TrimSpace(s), again)
	})
}

func FuzzRead(f *testing.F) {
	for _, frame := range frames() {
		var b bytes.Buffer
		require.NoError(f, Write(&b, frame))
		f.Add(b.Bytes())
	}
	f.Add([]byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		frame, err := Read(r)
		if err != nil {
			require.Nil(t, frame)
			return
		}
		var b bytes.Buffer
		require.NoError(t, Write(&b, frame))
		require.Equal(t, in[:len(in)-r.Len()], b.Bytes())
	})
}

// TestSpecIsCited: each rule of docs/pairing.md is cited by a test.
func TestSpecIsCited(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/pairing.md")
	require.NoError(t, err)
	var tests []byte
	for _, file := range []string{"pair_test.go", "../../gateway/pairing/invitation_test.go"} {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		tests = append(tests, b...)
	}
	cited := map[string]bool{}
	for _, line := range regexp.MustCompile(`// spec: .*`).FindAllString(string(tests), -1) {
		for _, id := range regexp.MustCompile(`PAIR-\d+`).FindAllString(line, -1) {
			cited[id] = true
		}
	}
	rules := regexp.MustCompile(`(?m)^- \[(PAIR-\d+)\]`).FindAllSubmatch(page, -1)
	require.Len(t, rules, len(cited))
	for _, r := range rules {
		require.True(t, cited[string(r[1])], "no test cites %s", r[1])
	}
}
