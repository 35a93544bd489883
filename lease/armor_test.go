package lease

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/name"
)

func hint(tb testing.TB, host string) string {
	tb.Helper()
	return host + "/p2p/" + testPeer(tb, 'g').String()
}

// spec: LEASE-29, LEASE-31
func TestArmor(t *testing.T) {
	t.Parallel()
	chain := [][]byte{sealed(t, testLease(t))}
	for _, addresses := range [][]string{
		nil,
		{hint(t, "/ip4/192.0.2.7/udp/4710/quic-v1")},
		{hint(t, "/ip6/2001:db8::1/tcp/4710"), hint(t, "/dns4/gateway.example/tcp/4710"), hint(t, "/dns/gateway.example/udp/1/quic-v1")},
	} {
		b, err := Armor(chain, addresses, AddressRule{})
		require.NoError(t, err)
		want := File{Chain: chain, Lease: testLease(t), Links: []Lease{testLease(t)}, Addresses: addresses}
		for _, text := range []string{string(b), "\n\t " + string(b) + "\n\n", strings.TrimSpace(string(b)), strings.ReplaceAll(string(b), "\n", "\r\n")} {
			got, err := ParseArmor([]byte(text), AddressRule{})
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		for line := range strings.Lines(string(b)) {
			require.LessOrEqual(t, len(line), 120)
		}
	}
}

// A file holds a whole chain, and tells of every link.
// spec: LEASE-29, LEASE-31
func TestArmorOfAChain(t *testing.T) {
	t.Parallel()
	root := testLease(t)
	root.DepthLeft = 2
	second := link(t, sealed(t, root), root, 'h', 'c', func(l *Lease) {
		l.Purpose, l.NotAfter, l.MaxOperations, l.Grants = "a part", l.NotAfter.Add(-time.Minute), 7, []Grant{l.Grants[0]}
		l.Grants[0].Commands = commands("issue.list")
	})
	chain := [][]byte{sealed(t, root), second}
	f, err := ParseArmor(must(Armor(chain, nil, AddressRule{})), AddressRule{})
	require.NoError(t, err)
	require.Equal(t, chain, f.Chain)
	require.Equal(t, []Lease{must(openEnvelope(chain[0])), must(openEnvelope(second))}, f.Links)
	require.Equal(t, must(Open(chain)), f.Lease)

	d := Describe(f, testTime)
	require.Equal(t, root.Issuer, d.Issuer)
	require.Equal(t, testPeer(t, 'c'), d.Holder)
	require.Equal(t, 7, d.MaxOperations)
	text := d.String()
	for _, want := range []string{
		"delegation:  may be passed on, 1 more\n",
		"link 0:      lease 0102030405060708090a0b0c0d0e0f10 of " + root.Issuer.String() + "\n             for " + root.Holder.String(),
		"link 1:      lease 1102030405060708090a0b0c0d0e0f10 of " + root.Holder.String() + "\n             for " + testPeer(t, 'c').String(),
		"             7 operations, 4 at once\n             \"a part\"\n             github 2.40.1: issue.list; repo only",
	} {
		require.Contains(t, text, want)
	}
	var back struct {
		DepthLeft int
		Links     []linkLine
	}
	require.NoError(t, json.Unmarshal(must(json.Marshal(d)), &back))
	require.Equal(t, 1, back.DepthLeft)
	require.Equal(t, d.Links, back.Links)
	require.Len(t, back.Links, 2)
}

// spec: LEASE-29, LEASE-31
func TestParseArmorRefuses(t *testing.T) {
	t.Parallel()
	good := string(must(Armor([][]byte{sealed(t, testLease(t))}, []string{hint(t, "/ip4/192.0.2.7/tcp/1")}, AddressRule{})))
	lines := strings.SplitAfter(good, "\n")
	root := testLease(t)
	root.DepthLeft = 1
	address := lines[1]
	for label, text := range map[string]string{
		"empty":            "",
		"no-begin":         strings.Join(lines[1:], ""),
		"no-end":           strings.TrimSuffix(good, armorEnd+"\n"),
		"text-before":      "hello\n" + good,
		"text-after":       good + "hello\n",
		"twice":            good + good,
		"other-pem":        strings.ReplaceAll(good, "LEND LEASE", "PRIVATE KEY"),
		"other-header":     strings.Replace(good, "Address:", "Comment:", 1),
		"header-spelling":  strings.Replace(good, "Address: ", "Address:  ", 1),
		"nine-addresses":   strings.Replace(good, address, strings.Repeat(address, 9), 1),
		"no-empty-line":    strings.Replace(good, "\n\n", "\n", 1),
		"two-empty-lines":  strings.Replace(good, "\n\n", "\n\n\n", 1),
		"trailing-space":   strings.Replace(good, "\n\n", " \n\n", 1),
		"short-line":       strings.Replace(good, lines[3], lines[3][:10]+"\n"+lines[3][10:], 1),
		"no-lease":         armorBegin + "\n" + address + "\n" + armorEnd + "\n",
		"bad-base64":       strings.Replace(good, lines[3], "!"+lines[3][1:], 1),
		"flipped":          string(armor([][]byte{flip(sealed(t, testLease(t)), 200)}, nil)),
		"not-delegable":    string(armor([][]byte{sealed(t, testLease(t)), delegated(t, testLease(t), 'c')}, nil)),
		"no-root":          string(armor([][]byte{delegated(t, root, 'c')}, nil)),
		"four":             string(armor([][]byte{{1}, {1}, {1}, {1}}, nil)),
		"huge":             good + strings.Repeat("\n", MaxFile),
		"loopback-address": string(armor([][]byte{sealed(t, testLease(t))}, []string{hint(t, "/ip4/127.0.0.1/tcp/1")})),
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			f, err := ParseArmor([]byte(text), AddressRule{})
			require.Error(t, err)
			require.Equal(t, File{}, f)
		})
	}
}

// spec: LEASE-30
func TestAddresses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", MaxAddress)
	for label, c := range map[string]struct {
		address string
		ok      bool // by the strict rule
		local   bool // only if asked for
	}{
		"tcp":              {hint(t, "/ip4/192.0.2.7/tcp/1"), true, false},
		"quic":             {hint(t, "/ip6/2001:db8::1/udp/1/quic-v1"), true, false},
		"dns6":             {hint(t, "/dns6/gateway.example/tcp/1"), true, false},
		"private":          {hint(t, "/ip4/10.0.0.7/tcp/1"), true, false},
		"loopback":         {hint(t, "/ip4/127.8.0.1/tcp/1"), false, true},
		"loopback-6":       {hint(t, "/ip6/::1/tcp/1"), false, true},
		"loopback-mapped":  {hint(t, "/ip6/::ffff:127.0.0.1/tcp/1"), false, true},
		"link-local":       {hint(t, "/ip4/169.254.1.1/tcp/1"), false, true},
		"link-local-6":     {hint(t, "/ip6/fe80::1/tcp/1"), false, true},
		"localhost":        {hint(t, "/dns4/localhost/tcp/1"), false, true},
		"localhost-dot":    {hint(t, "/dns/LocalHost./tcp/1"), false, true},
		"under-localhost":  {hint(t, "/dns/a.localhost/tcp/1"), false, true},
		"unspecified":      {hint(t, "/ip4/0.0.0.0/tcp/1"), false, false},
		"unspecified-6":    {hint(t, "/ip6/::/tcp/1"), false, false},
		"no-peer":          {"/ip4/192.0.2.7/tcp/1", false, false},
		"other-peer":       {"/ip4/192.0.2.7/tcp/1/p2p/" + testPeer(t, 'x').String(), false, false},
		"only-peer":        {hint(t, ""), false, false},
		"relayed":          {hint(t, "/ip4/192.0.2.7/tcp/1/p2p/"+testPeer(t, 'x').String()+"/p2p-circuit"), false, false},
		"websocket":        {hint(t, "/ip4/192.0.2.7/tcp/1/ws"), false, false},
		"udp-alone":        {hint(t, "/ip4/192.0.2.7/udp/1"), false, false},
		"old-quic":         {hint(t, "/ip4/192.0.2.7/udp/1/quic"), false, false},
		"zone":             {hint(t, "/ip6zone/eth0/ip6/fe80::1/tcp/1"), false, false},
		"unix":             {hint(t, "/unix/tmp"), false, false},
		"dnsaddr":          {hint(t, "/dnsaddr/gateway.example"), false, false},
		"after-peer":       {hint(t, "/ip4/192.0.2.7/tcp/1") + "/tcp/2", false, false},
		"not-usual":        {hint(t, "/ip6/2001:db8:0::1/tcp/1"), false, false},
		"trailing-slash":   {hint(t, "/ip4/192.0.2.7/tcp/1") + "/", false, false},
		"newline":          {hint(t, "/dns4/a\nAddress: x/tcp/1"), false, false},
		"nothing":          {"", false, false},
		"too-long":         {hint(t, "/dns4/"+long+"/tcp/1"), false, false},
		"another-protocol": {"/memory/1", false, false},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			chain := [][]byte{sealed(t, testLease(t))}
			_, strict := Armor(chain, []string{c.address}, AddressRule{})
			_, local := Armor(chain, []string{c.address}, AddressRule{AllowLocal: true})
			require.Equal(t, c.ok, strict == nil, "%v", strict)
			require.Equal(t, c.ok || c.local, local == nil, "%v", local)
			f, err := ParseArmor(armor(chain, []string{c.address}), AddressRule{AllowLocal: true})
			require.Equal(t, local == nil, err == nil, "%v", err)
			if err != nil {
				require.Equal(t, File{}, f)
			}
		})
	}
	nine := slicesRepeat(hint(t, "/ip4/192.0.2.7/tcp/1"), 9)
	_, err := Armor([][]byte{sealed(t, testLease(t))}, nine, AddressRule{})
	require.ErrorContains(t, err, "more than 8")
}

func slicesRepeat(s string, n int) (out []string) {
	for range n {
		out = append(out, s)
	}
	return out
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	f := File{Lease: testLease(t), Addresses: []string{hint(t, "/ip4/192.0.2.7/tcp/1")}}
	d := Describe(f, testTime.Add(time.Minute))
	require.Equal(t, "valid", d.State)
	want := fmt.Sprintf(`lease:       0102030405060708090a0b0c0d0e0f10
state:       valid for 9m0s
issuer:      %s
holder:      %s
gateway:     %s
invocation:  run-1
authority:   owner
issued:      2026-11-30T12:00:00Z
valid:       2026-11-30T12:00:00Z to 2026-11-30T12:10:00Z
operations:  100, 4 at once
purpose:     "nightly triage"
grant:       github 2.40.1: issue.list, issue.view; repo only "acme/a" or "acme/b"; state only "open"
grant:       json5 2.2.3: format; may finish after expiry
address:     "/ip4/192.0.2.7/tcp/1/p2p/%s"
`, testPeer(t, 'i'), testPeer(t, 'h'), testPeer(t, 'g'), testPeer(t, 'g'))
	require.Equal(t, want, d.String())
	require.Contains(t, Describe(f, testTime.Add(time.Hour)).String(), "state:       expired 50m0s ago\n")
	require.Contains(t, Describe(f, testTime.Add(-time.Hour)).String(), "state:       valid in 1h0m0s\n")
	require.Equal(t, "expired", Describe(f, f.Lease.NotAfter).State)
	require.Equal(t, "not-yet", Describe(f, testTime.Add(-1)).State)

	b, err := json.Marshal(d)
	require.NoError(t, err)
	var back struct {
		Lease      ID
		Holder     name.PeerID
		State      string
		NotAfter   time.Time `json:"notAfter"`
		Operations int       `json:"maxOperations"`
		Grants     []grantLine
	}
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, f.Lease.ID, back.Lease)
	require.Equal(t, f.Lease.NotAfter, back.NotAfter)
	require.Equal(t, d.Grants, back.Grants)
}

func FuzzDecode(f *testing.F) {
	for _, v := range vectors(f) {
		for _, b := range v.chain {
			f.Add(b)
		}
	}
	f.Add(must(ptr(testLease(f)).encode()))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, read := range []func([]byte) (Lease, error){decode, openEnvelope} {
			l, err := read(b)
			if err != nil {
				var e *Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, Lease{}, l)
				continue
			}
			again, err := l.encode()
			require.NoError(t, err)
			require.True(t, bytes.Contains(b, again), "accepted bytes are those that are written")
		}
	})
}

// FuzzChain: bytes that open as a chain are a root and what follows from it, and
// say no more together than each link does.
func FuzzChain(f *testing.F) {
	for _, v := range vectors(f) {
		if len(v.chain) > 1 && len(v.chain) <= MaxChain {
			f.Add(v.chain[0], v.chain[1], v.chain[len(v.chain)-1])
		}
	}
	f.Fuzz(func(t *testing.T, first, second, third []byte) {
		for _, chain := range [][][]byte{{first, second}, {first, third}, {first, second, third}, {second, third}} {
			l, err := Open(chain)
			if err != nil {
				var e *Error
				require.ErrorAs(t, err, &e)
				require.Less(t, e.Link, len(chain))
				require.Equal(t, Lease{}, l)
				continue
			}
			links, err := openChain(chain)
			require.NoError(t, err)
			require.Equal(t, [32]byte{}, links[0].Parent)
			for i := range links {
				require.False(t, l.NotAfter.After(links[i].NotAfter))
				require.LessOrEqual(t, l.MaxOperations, links[i].MaxOperations)
				require.Equal(t, i > 0, links[i].Parent != [32]byte{})
			}
		}
	})
}

func FuzzParseArmor(f *testing.F) {
	chain := [][]byte{sealed(f, testLease(f))}
	f.Add(armor(chain, nil))
	f.Add(armor(chain, []string{hint(f, "/ip4/192.0.2.7/tcp/1")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := ParseArmor(b, AddressRule{})
		if err != nil {
			require.Equal(t, File{}, file)
			return
		}
		again, err := Armor(file.Chain, file.Addresses, AddressRule{})
		require.NoError(t, err)
		require.Equal(t, strings.TrimSpace(strings.ReplaceAll(string(b), "\r\n", "\n")), strings.TrimSpace(string(again)))
	})
}
