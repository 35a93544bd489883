package lease

import (
	"maps"
	"slices"
	"time"

	"github.com/lendcli/lend/protocol/name"
)

// Open reads a chain for its holder, or for somebody who shows it: form,
// signatures and issuers' keys are right, the links fit, and nothing says that
// anybody trusts the root's issuer. What it returns is what all links say together.
// The error is an *Error.
func Open(chain [][]byte) (Lease, error) {
	links, err := openLinks(chain)
	if err != nil {
		return Lease{}, err
	}
	return together(links), nil
}

func openLinks(chain [][]byte) ([]Lease, error) {
	links, err := openChain(chain)
	if err != nil {
		return nil, err
	}
	if err := checkChain(chain, links); err != nil {
		return nil, err
	}
	return links, nil
}

// checkChain holds what is true of a good chain whoever looks at it, and whenever:
// from the root down, each link continues the one above it, and says nothing that
// this version does not understand. Grants, times and numbers are not compared,
// since only what all links say together counts. spec: LEASE-20 to LEASE-23,
// LEASE-40 to LEASE-44.
func checkChain(chain [][]byte, links []Lease) error {
	if links[0].Parent != [32]byte{} {
		return refuse(ReasonLink, "the lease has a parent that was not presented")
	}
	for i := 1; i < len(links); i++ {
		if err := links[i].follows(links[:i], envelopeHash(chain[i-1])); err != nil {
			return at(i, err)
		}
	}
	for i := range links {
		if err := links[i].acceptable(); err != nil {
			return at(i, err)
		}
	}
	return nil
}

// follows checks l against the links above it; hash is that of the last one's
// envelope.
func (l *Lease) follows(above []Lease, hash [32]byte) error {
	parent := &above[len(above)-1]
	switch {
	case slices.ContainsFunc(above, func(o Lease) bool { return o.ID == l.ID }):
		return refuse(ReasonDuplicate, "")
	case l.Parent != hash:
		return refuse(ReasonParent, "")
	case l.Issuer != parent.Holder:
		return refuse(ReasonLinkIssuer, quotedPeer(l.Issuer))
	case parent.DepthLeft == 0:
		return refuse(ReasonFinal, "")
	case l.DepthLeft >= parent.DepthLeft:
		return refuse(ReasonDepthLeft, "")
	case l.Invocation != parent.Invocation:
		return refuse(ReasonInvocation, name.Quote(l.Invocation.String()))
	case slices.ContainsFunc(above, func(o Lease) bool { return o.Holder == l.Holder }):
		return refuse(ReasonHolderTwice, quotedPeer(l.Holder))
	}
	return nil
}

// together is what all links of a chain say: a lease of the root's issuer for the
// last holder, with the ID and the purpose of the last link, and of everything else
// the least. A command is in it only if every link grants it, with the pins of
// all. spec: LEASE-45.
func together(links []Lease) Lease {
	l := links[len(links)-1]
	above := links[:len(links)-1]
	if len(above) == 0 {
		return l
	}
	l.Issuer = links[0].Issuer
	for i := range above {
		o := &above[i]
		l.IssuedAt, l.NotAfter = earlier(l.IssuedAt, o.IssuedAt), earlier(l.NotAfter, o.NotAfter)
		if o.NotBefore.After(l.NotBefore) {
			l.NotBefore = o.NotBefore
		}
		l.MaxOperations, l.MaxConcurrent = min(l.MaxOperations, o.MaxOperations), min(l.MaxConcurrent, o.MaxConcurrent)
	}
	l.Grants = grantsOfAll(l.Grants, above)
	return l
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// granted names one command of one version.
type granted struct {
	connector name.ConnectorKey
	version   name.Version
	command   name.Command
}

// grantsOfAll narrows the last link's grants by those of the links above. Commands
// of one grant that come out with different terms are in different grants.
func grantsOfAll(last []Grant, above []Lease) (out []Grant) {
	byCommand := make([]map[granted]*Grant, len(above))
	for i := range above {
		byCommand[i] = make(map[granted]*Grant)
		for j := range above[i].Grants {
			g := &above[i].Grants[j]
			for _, c := range g.Commands {
				byCommand[i][granted{g.Connector, g.Version, c}] = g
			}
		}
	}
	for _, g := range last {
		first := len(out)
		for _, c := range g.Commands {
			one, ok := g, true
			one.Commands = []name.Command{c}
			for i := 0; i < len(above) && ok; i++ {
				o := byCommand[i][granted{g.Connector, g.Version, c}]
				if ok = o != nil; ok {
					one, ok = one.narrowed(o)
				}
			}
			switch same := slices.IndexFunc(out[first:], one.sameTerms); {
			case !ok:
			case same >= 0:
				out[first+same].Commands = append(out[first+same].Commands, c)
			default:
				out = append(out, one)
			}
		}
	}
	return out
}

// narrowed returns g under the terms of o as well. It is false if a parameter is
// pinned to values that have none in common: then nothing runs.
func (g Grant) narrowed(o *Grant) (Grant, bool) {
	g.Finish = g.Finish && o.Finish
	pins := make(map[name.Parameter][]string, len(g.Pins)+len(o.Pins))
	maps.Copy(pins, g.Pins)
	for p, allowed := range o.Pins {
		if mine, ok := g.Pins[p]; ok {
			allowed = slices.DeleteFunc(slices.Clone(mine), func(s string) bool { return !slices.Contains(o.Pins[p], s) })
		}
		if len(allowed) == 0 {
			return Grant{}, false
		}
		pins[p] = allowed
	}
	g.Pins = pins
	return g, true
}

// sameTerms tells whether two grants differ in their commands only.
func (g *Grant) sameTerms(o Grant) bool {
	return g.Connector == o.Connector && g.Version == o.Version && g.Finish == o.Finish &&
		maps.EqualFunc(g.Pins, o.Pins, slices.Equal[[]string])
}

// Grant returns what every link grants of one command: the pins of all of them
// together, and Finish only if all say so. The error is an *Error with
// ReasonNoConnector, ReasonNoVersion or ReasonNoCommand and the first link that
// does not grant it. spec: LEASE-28, LEASE-45.
func (l *Verified) Grant(key name.ConnectorKey, version name.Version, command name.Command) (Grant, error) {
	out, err := Grant{}, error(refuse(ReasonNoConnector, ""))
	for i := range l.Links {
		var g Grant
		if g, err = l.Links[i].Grant(key, version, command); err != nil {
			return Grant{}, at(i, err)
		}
		g.Commands = []name.Command{command}
		if i == 0 {
			out = g
			continue
		}
		var ok bool
		if out, ok = g.narrowed(&out); !ok {
			return Grant{}, at(i, refuse(ReasonNoCommand, "no value passes the pins of this link and of those above it"))
		}
	}
	return out, err
}

// Subjects are what a revocation of this lease may name: each link with its own
// issuer, and each delegated one as the root issuer's, too. Each has to be asked
// for: Revoked does.
func (l *Verified) Subjects() []Subject {
	out := make([]Subject, 0, 2*len(l.Links))
	for i := range l.Links {
		s := Subject{
			Lease: l.Links[i].ID, Invocation: l.Links[i].Invocation, Holder: l.Links[i].Holder,
			Issuer: l.Links[i].Issuer, IssuedAt: l.Links[i].IssuedAt,
		}
		out = append(out, s)
		if s.Issuer != l.Root {
			s.Issuer = l.Root
			out = append(out, s)
		}
	}
	return out
}

// Revoked tells whether any link was revoked. nil has revoked everything.
// spec: LEASE-26, LEASE-47.
func (l *Verified) Revoked(by RevocationChecker) bool {
	return by == nil || len(l.Links) == 0 || slices.ContainsFunc(l.Subjects(), by.Revoked)
}

// Subject is what a revocation of the last link would name.
func (l *Verified) Subject() Subject {
	return Subject{Lease: l.ID, Invocation: l.Invocation, Holder: l.Holder, Issuer: l.Root, IssuedAt: l.IssuedAt}
}
