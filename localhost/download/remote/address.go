package remote

import "net/netip"

// special lists what is not the public internet, beside what netip knows: each is a
// registry of IANA's special-purpose addresses.
func special() []netip.Prefix {
	out := make([]netip.Prefix, 0, 32)
	for _, p := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24",
		"192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
	} {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// Public tells whether a is an address of the public internet: no machine or network of
// the owner's, no documentation, no tunnel that hides another address. An address that
// embeds an IPv4 one is judged by that.
func Public(a netip.Addr) bool {
	if a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if nat64 := netip.MustParsePrefix("64:ff9b::/96"); nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	} else if a.Is6() && !netip.MustParsePrefix("2000::/3").Contains(a) {
		return false
	}
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return false
	}
	for _, p := range special() {
		if p.Contains(a) {
			return false
		}
	}
	return true
}
