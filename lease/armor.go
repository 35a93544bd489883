package lease

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/lendcli/lend/protocol/name"
)

// File is the content of a lease file.
type File struct {
	// Chain is what is presented to the gateway, root first.
	Chain [][]byte
	// Lease is what Open says of Chain: what all of it allows together. Links are its
	// leases as they were signed. Armor ignores both.
	Lease Lease
	Links []Lease
	// Addresses are unsigned hints where the gateway may be: multiaddrs that end in
	// its peer ID. Anybody on the way can have changed them; the channel's key says
	// who answers.
	Addresses []string
}

// AddressRule says which hints are accepted. The zero value is the strict one.
type AddressRule struct {
	// AllowLocal accepts loopback and link-local addresses.
	AllowLocal bool
}

const (
	armorBegin  = "-----BEGIN LEND LEASE-----"
	armorEnd    = "-----END LEND LEASE-----"
	armorHint   = "Address: "
	armorColumn = 64

	// addressBytes keeps lines, escapes and look-alikes out of host names.
	addressBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/"
)

// Armor writes a lease file: text that survives mail and terminals. The error is
// an *Error of Open, or says which address is refused. spec: LEASE-29, LEASE-30.
func Armor(chain [][]byte, addresses []string, rule AddressRule) ([]byte, error) {
	l, err := Open(chain)
	if err != nil {
		return nil, fmt.Errorf("write lease file: %w", err)
	}
	if err := checkAddresses(addresses, l.Gateway, rule); err != nil {
		return nil, fmt.Errorf("write lease file: %w", err)
	}
	return armor(chain, addresses), nil
}

func armor(chain [][]byte, addresses []string) []byte {
	var b bytes.Buffer
	b.WriteString(armorBegin + "\n")
	for _, a := range addresses {
		b.WriteString(armorHint + a + "\n")
	}
	for _, sealed := range chain {
		b.WriteString("\n")
		text := base64.StdEncoding.EncodeToString(sealed)
		for len(text) > 0 {
			n := min(armorColumn, len(text))
			b.WriteString(text[:n] + "\n")
			text = text[n:]
		}
	}
	b.WriteString(armorEnd + "\n")
	return b.Bytes()
}

// ParseArmor reads a lease file. It accepts what Armor writes, with white space
// around it and either kind of line end, and nothing else; the lease in it was
// opened, and nobody is trusted for it. spec: LEASE-29 to LEASE-31.
func ParseArmor(b []byte, rule AddressRule) (File, error) {
	f, err := parseArmor(b, rule)
	if err != nil {
		return File{}, fmt.Errorf("read lease file: %w", err)
	}
	return f, nil
}

func parseArmor(b []byte, rule AddressRule) (File, error) {
	if len(b) > MaxFile {
		return File{}, fmt.Errorf("more than %d bytes", MaxFile)
	}
	text := strings.TrimSpace(strings.ReplaceAll(string(b), "\r\n", "\n")) + "\n"
	body, ok := strings.CutPrefix(text, armorBegin+"\n")
	if !ok {
		return File{}, errors.New("it does not begin with " + armorBegin)
	}
	if body, ok = strings.CutSuffix(body, armorEnd+"\n"); !ok {
		return File{}, errors.New("it does not end with " + armorEnd)
	}
	head, paragraphs, _ := strings.Cut(body, "\n\n")
	if rest, found := strings.CutPrefix(body, "\n"); found { // no addresses
		head, paragraphs = "", rest
	}
	var f File
	for line := range strings.Lines(head) {
		a, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), armorHint)
		if !ok || len(f.Addresses) == MaxAddresses {
			return File{}, errors.New("want at most 8 lines \"Address: …\" before an empty line")
		}
		f.Addresses = append(f.Addresses, a)
	}
	for p := range strings.SplitSeq(paragraphs, "\n\n") {
		sealed, err := base64.StdEncoding.Strict().DecodeString(strings.ReplaceAll(p, "\n", ""))
		if err != nil || len(f.Chain) == MaxChain {
			return File{}, errors.New("want 1 to 3 paragraphs of base64")
		}
		f.Chain = append(f.Chain, sealed)
	}
	if string(armor(f.Chain, f.Addresses)) != text {
		return File{}, errors.New("it is not laid out as it was written")
	}
	var err error
	if f.Links, err = openLinks(f.Chain); err != nil {
		return File{}, err
	}
	f.Lease = together(f.Links)
	return f, checkAddresses(f.Addresses, f.Lease.Gateway, rule)
}

func checkAddresses(addresses []string, gateway name.PeerID, rule AddressRule) error {
	if len(addresses) > MaxAddresses {
		return fmt.Errorf("more than %d addresses", MaxAddresses)
	}
	for _, a := range addresses {
		if why := checkAddress(a, gateway, rule); why != "" {
			return fmt.Errorf("address %s: %s", name.Quote(a), why)
		}
	}
	return nil
}

// checkAddress returns why an address is refused. spec: LEASE-30.
func checkAddress(s string, gateway name.PeerID, rule AddressRule) string {
	if len(s) > MaxAddress {
		return "too long"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune(addressBytes, r) }) {
		return "a byte that belongs in no address"
	}
	m, err := multiaddr.NewMultiaddr(s)
	if err != nil || m.String() != s {
		return "not a multiaddr in its usual spelling"
	}
	var codes []int
	for _, p := range m.Protocols() {
		codes = append(codes, p.Code)
	}
	if !knownShape(codes) {
		return "want /ip4, /ip6 or /dns* with /tcp/PORT or /udp/PORT/quic-v1, then /p2p/PEER"
	}
	if id, err := m.ValueForProtocol(multiaddr.P_P2P); err != nil || id != gateway.String() {
		return "it does not end in the lease's gateway"
	}
	if manet.IsIPUnspecified(m) {
		return "no address to dial"
	}
	if local(m) && !rule.AllowLocal {
		return "loopback or link-local"
	}
	return ""
}

// knownShape wants host, transport, peer.
func knownShape(codes []int) bool {
	if len(codes) < 3 || codes[len(codes)-1] != multiaddr.P_P2P {
		return false
	}
	switch codes[0] {
	case multiaddr.P_IP4, multiaddr.P_IP6, multiaddr.P_DNS, multiaddr.P_DNS4, multiaddr.P_DNS6:
	default:
		return false
	}
	transport := codes[1 : len(codes)-1]
	return len(transport) == 1 && transport[0] == multiaddr.P_TCP ||
		len(transport) == 2 && transport[0] == multiaddr.P_UDP && transport[1] == multiaddr.P_QUIC_V1
}

// local also covers names of this machine, which resolve to loopback.
func local(m multiaddr.Multiaddr) bool {
	for _, code := range []int{multiaddr.P_DNS, multiaddr.P_DNS4, multiaddr.P_DNS6} {
		if host, err := m.ValueForProtocol(code); err == nil {
			host = strings.ToLower(strings.TrimSuffix(host, "."))
			return host == "localhost" || strings.HasSuffix(host, ".localhost")
		}
	}
	ip, err := manet.ToIP(m)
	return err == nil && (ip.IsLoopback() || ip.IsLinkLocalUnicast())
}
