package revocations

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

// Links writes down what a revocation may name of a lease, for a record that has
// the invocation, the holder and the root issuer (those of last) anyway. Past reads
// it.
func Links(last lease.Subject, subjects []lease.Subject) string {
	var out []string
	for _, s := range subjects {
		link := []string{s.Lease.String(), strconv.FormatInt(s.IssuedAt.UnixMilli(), 10)}
		if s.Holder != last.Holder || s.Issuer != last.Issuer {
			link = append(link, s.Holder.String(), s.Issuer.String())
		}
		out = append(out, strings.Join(link, ":"))
	}
	return strings.Join(out, " ")
}

// Past tells whether a lease that is only known from a record was revoked: last is
// its last link, without a time, and links what Links wrote. A record that does not
// say so, or not legibly, may have been of a lease issued at any time.
func Past(by lease.RevocationChecker, last lease.Subject, links string) bool {
	if by == nil || links == "" {
		return by == nil || by.Revoked(last)
	}
	return slices.ContainsFunc(strings.Split(links, " "), func(link string) bool {
		s, ok := parseLink(last, link)
		return !ok && by.Revoked(last) || by.Revoked(s)
	})
}

func parseLink(s lease.Subject, link string) (lease.Subject, bool) {
	parts := strings.Split(link, ":")
	if len(parts) != 2 && len(parts) != 4 {
		return s, false
	}
	id, err := lease.ParseID(parts[0])
	ms, errTime := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || errTime != nil {
		return s, false
	}
	s.Lease, s.IssuedAt = id, time.UnixMilli(ms).UTC()
	if len(parts) == 4 {
		var errHolder, errIssuer error
		s.Holder, errHolder = name.ParsePeerID(parts[2])
		s.Issuer, errIssuer = name.ParsePeerID(parts[3])
		return s, errHolder == nil && errIssuer == nil
	}
	return s, true
}
