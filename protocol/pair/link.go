package pair

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/multiformats/go-multiaddr"

	"github.com/lendcli/lend/protocol/name"
)

// Bounds of a link.
const (
	// MaxLink bounds the text, in bytes.
	MaxLink = 1 << 10
	// MaxAddresses counts the owner's addresses; there is one at least.
	MaxAddresses = 8
	// SecretSize is the size of the secret, in bytes.
	SecretSize = 16

	maxAddress = 96 // bytes of one, in binary
	checkSize  = 4
	keySize    = 32
	linkScheme = "lend-pair:"
	linkPrefix = linkScheme + "1:"
	linkDomain = "lend pair link 1\x00"
	// addressBytes keeps lines, escapes and look-alikes out of host names.
	addressBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/"
)

// Errors of ParseLink. They hold nothing of the text, which is a secret.
var (
	// ErrNotLink: the text is no link.
	ErrNotLink = errors.New("not a pairing link (" + linkPrefix + "…)")
	// ErrLinkVersion: it is the link of another version of lend.
	ErrLinkVersion = errors.New("a pairing link of another version of lend")
	// ErrLinkCut: it is not the whole link, or one with a mistake in it.
	ErrLinkCut = errors.New("a pairing link that is not whole, or has a mistake in it: copy it again")
)

// Secret is what an invitation is used with, once. It shows itself nowhere.
type Secret [SecretSize]byte

// String does not tell.
func (Secret) String() string { return "(secret)" }

// GoString does not tell either.
func (Secret) GoString() string { return "(secret)" }

// Link is an invitation, as the owner hands it over.
type Link struct {
	Owner name.PeerID
	// Addresses are 1 to MaxAddresses of ip4, ip6, dns, dns4 or dns6, with tcp or
	// udp/quic-v1, without the peer ID.
	Addresses []multiaddr.Multiaddr
	Secret    Secret
}

// String names the owner, and does not tell the secret; Text does.
func (l Link) String() string { return "link of " + l.Owner.String() }

// GoString is String.
func (l Link) GoString() string { return l.String() }

// Text is the link as it is handed over. The error says what cannot be in one.
// spec: PAIR-1
func (l Link) Text() (string, error) {
	if l.Owner.IsZero() {
		return "", errors.New("write link: no owner")
	}
	if n := len(l.Addresses); n == 0 || n > MaxAddresses {
		return "", fmt.Errorf("write link: %d addresses, want 1 to %d", n, MaxAddresses)
	}
	b := append(slices.Clone(l.Secret[:]), l.Owner.Key()...)
	b = append(b, byte(len(l.Addresses)))
	for i, a := range l.Addresses {
		if !Addressable(a) || slices.ContainsFunc(l.Addresses[:i], a.Equal) {
			return "", errors.New("write link: an address that belongs in none, or twice")
		}
		b = append(append(b, byte(len(a.Bytes()))), a.Bytes()...)
	}
	return linkPrefix + base64.RawURLEncoding.EncodeToString(append(b, checkOf(b)...)), nil
}

func checkOf(b []byte) []byte {
	sum := sha256.Sum256(append([]byte(linkDomain), b...))
	return sum[:checkSize]
}

// ParseLink reads a link. It accepts what Text writes, with white space around it, and
// nothing else. The error is one of those above. spec: PAIR-1
func ParseLink(text string) (Link, error) {
	if len(text) > 2*MaxLink {
		return Link{}, ErrNotLink
	}
	text = strings.TrimSpace(text)
	body, ok := strings.CutPrefix(text, linkPrefix)
	switch {
	case !ok && strings.HasPrefix(text, linkScheme):
		return Link{}, ErrLinkVersion
	case !ok || len(text) > MaxLink:
		return Link{}, ErrNotLink
	}
	b, _ := base64.RawURLEncoding.DecodeString(body) // what is not read is missed below
	if len(b) < SecretSize+keySize+1+checkSize {
		return Link{}, ErrLinkCut
	}
	l := Link{Secret: Secret(b)}
	l.Owner, _ = name.PeerIDFromKey(b[SecretSize : SecretSize+keySize])
	l.Addresses = addressesIn(b[SecretSize+keySize : len(b)-checkSize])
	again, _ := l.Text()                                              // "" for what cannot be a link
	if subtle.ConstantTimeCompare([]byte(again), []byte(text)) != 1 { // the checksum, too
		return Link{}, ErrLinkCut
	}
	return l, nil
}

// addressesIn reads addresses as far as they can be read: what was lost is missed when
// the link is written again.
func addressesIn(b []byte) (out []multiaddr.Multiaddr) {
	for b = b[1:]; len(b) > 0 && len(b) > int(b[0]); b = b[1+int(b[0]):] {
		a, err := multiaddr.NewMultiaddrBytes(b[1 : 1+int(b[0])])
		if err != nil {
			return nil
		}
		out = append(out, a)
	}
	return out
}

// Addressable tells whether an address may be in a link.
func Addressable(a multiaddr.Multiaddr) bool {
	var codes []int
	for _, c := range a {
		codes = append(codes, c.Protocol().Code)
	}
	plain := !strings.ContainsFunc(a.String(), func(r rune) bool { return !strings.ContainsRune(addressBytes, r) })
	hosts := []int{multiaddr.P_IP4, multiaddr.P_IP6, multiaddr.P_DNS, multiaddr.P_DNS4, multiaddr.P_DNS6}
	return plain && len(a.Bytes()) <= maxAddress && len(codes) > 1 && slices.Contains(hosts, codes[0]) &&
		(slices.Equal(codes[1:], []int{multiaddr.P_TCP}) || slices.Equal(codes[1:], []int{multiaddr.P_UDP, multiaddr.P_QUIC_V1}))
}
