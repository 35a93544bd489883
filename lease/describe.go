package lease

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/protocol/name"
)

// Description is a lease for people and for programs: the value behind "lend
// lease show". What it says is what all links of the chain say together; a
// delegated lease has the links as well. The JSON form only ever gains fields.
// Nothing in it says that anybody trusts the issuer.
type Description struct {
	Lease         ID                `json:"lease"`
	Issuer        name.PeerID       `json:"issuer"`
	Holder        name.PeerID       `json:"holder"`
	Gateway       name.PeerID       `json:"gateway"`
	Invocation    name.InvocationID `json:"invocation"`
	Authority     string            `json:"authority"`
	Grants        []grantLine       `json:"grants"`
	IssuedAt      time.Time         `json:"issuedAt"`
	NotBefore     time.Time         `json:"notBefore"`
	NotAfter      time.Time         `json:"notAfter"`
	State         string            `json:"state"` // "valid", "not-yet" or "expired" at the time of asking
	MaxOperations int               `json:"maxOperations"`
	MaxConcurrent int               `json:"maxConcurrent"`
	Purpose       string            `json:"purpose,omitempty"`
	DepthLeft     int               `json:"depthLeft,omitempty"`
	Links         []linkLine        `json:"links,omitempty"` // root first; none of a lease that nobody passed on
	Addresses     []string          `json:"addresses,omitempty"`

	now time.Time
}

// linkLine is one link of a chain, as it was signed.
type linkLine struct {
	Lease         ID          `json:"lease"`
	Issuer        name.PeerID `json:"issuer"`
	Holder        name.PeerID `json:"holder"`
	Grants        []grantLine `json:"grants"`
	IssuedAt      time.Time   `json:"issuedAt"`
	NotBefore     time.Time   `json:"notBefore"`
	NotAfter      time.Time   `json:"notAfter"`
	MaxOperations int         `json:"maxOperations"`
	MaxConcurrent int         `json:"maxConcurrent"`
	Purpose       string      `json:"purpose,omitempty"`
	DepthLeft     int         `json:"depthLeft,omitempty"`
}

// grantLine is one grant of a Description.
type grantLine struct {
	Connector name.ConnectorKey   `json:"connector"`
	Version   name.Version        `json:"version"`
	Commands  []name.Command      `json:"commands"`
	Pins      map[string][]string `json:"pins,omitempty"`
	OnExpiry  string              `json:"onExpiry"` // "stop" or "finish"
}

// Describe returns the description of a lease file as of now.
func Describe(f File, now time.Time) Description {
	l := &f.Lease
	d := Description{
		Lease: l.ID, Issuer: l.Issuer, Holder: l.Holder, Gateway: l.Gateway, Invocation: l.Invocation,
		Authority: l.Authority.String(), IssuedAt: l.IssuedAt, NotBefore: l.NotBefore, NotAfter: l.NotAfter,
		State: "valid", MaxOperations: l.MaxOperations, MaxConcurrent: l.MaxConcurrent,
		Purpose: l.Purpose, DepthLeft: l.DepthLeft, Grants: grantLines(l.Grants), Addresses: slices.Clone(f.Addresses), now: now,
	}
	if len(f.Links) > 1 {
		for i := range f.Links {
			o := &f.Links[i]
			d.Links = append(d.Links, linkLine{
				Lease: o.ID, Issuer: o.Issuer, Holder: o.Holder, Grants: grantLines(o.Grants),
				IssuedAt: o.IssuedAt, NotBefore: o.NotBefore, NotAfter: o.NotAfter,
				MaxOperations: o.MaxOperations, MaxConcurrent: o.MaxConcurrent, Purpose: o.Purpose, DepthLeft: o.DepthLeft,
			})
		}
	}
	switch {
	case !now.Before(l.NotAfter):
		d.State = "expired"
	case now.Before(l.NotBefore):
		d.State = "not-yet"
	}
	return d
}

func grantLines(grants []Grant) (out []grantLine) {
	for _, g := range grants {
		line := grantLine{Connector: g.Connector, Version: g.Version, Commands: slices.Clone(g.Commands), OnExpiry: "stop"}
		if g.Finish {
			line.OnExpiry = "finish"
		}
		for p, allowed := range g.Pins {
			if line.Pins == nil {
				line.Pins = make(map[string][]string)
			}
			line.Pins[p.String()] = slices.Clone(allowed)
		}
		out = append(out, line)
	}
	return out
}

// String is the readable form: lines of "name: value"; text from the lease is
// quoted.
func (d Description) String() string {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		if key != "" {
			key += ":"
		}
		fmt.Fprintf(&b, "%-12s %s\n", key, fmt.Sprintf(format, args...))
	}
	line("lease", "%s", d.Lease)
	line("state", "%s", d.state())
	line("issuer", "%s", d.Issuer)
	line("holder", "%s", d.Holder)
	line("gateway", "%s", d.Gateway)
	line("invocation", "%s", d.Invocation)
	line("authority", "%s", d.Authority)
	line("issued", "%s", d.IssuedAt.Format(time.RFC3339))
	line("valid", "%s to %s", d.NotBefore.Format(time.RFC3339), d.NotAfter.Format(time.RFC3339))
	line("operations", "%d, %d at once", d.MaxOperations, d.MaxConcurrent)
	if d.Purpose != "" {
		line("purpose", "%s", name.Quote(d.Purpose))
	}
	for _, g := range d.Grants {
		line("grant", "%s", g)
	}
	if d.DepthLeft > 0 {
		line("delegation", "may be passed on, %d more", d.DepthLeft)
	}
	for i, o := range d.Links {
		line(fmt.Sprintf("link %d", i), "lease %s of %s", o.Lease, o.Issuer)
		line("", "for %s, %s to %s", o.Holder, o.NotBefore.Format(time.RFC3339), o.NotAfter.Format(time.RFC3339))
		line("", "%d operations, %d at once", o.MaxOperations, o.MaxConcurrent)
		if o.Purpose != "" {
			line("", "%s", name.Quote(o.Purpose))
		}
		for _, g := range o.Grants {
			line("", "%s", g)
		}
	}
	for _, a := range d.Addresses {
		line("address", "%s", name.Quote(a))
	}
	return b.String()
}

func (d Description) state() string {
	switch d.State {
	case "expired":
		return fmt.Sprintf("expired %s ago", d.now.Sub(d.NotAfter).Round(time.Second))
	case "not-yet":
		return fmt.Sprintf("valid in %s", d.NotBefore.Sub(d.now).Round(time.Second))
	default:
		return fmt.Sprintf("valid for %s", d.NotAfter.Sub(d.now).Round(time.Second))
	}
}

func (g grantLine) String() string {
	names := make([]string, len(g.Commands))
	for i, c := range g.Commands {
		names[i] = c.String()
	}
	s := fmt.Sprintf("%s %s: %s", g.Connector, g.Version, strings.Join(names, ", "))
	for _, p := range slices.SortedFunc(maps.Keys(g.Pins), cmp.Compare[string]) {
		quoted := make([]string, len(g.Pins[p]))
		for i, v := range g.Pins[p] {
			quoted[i] = name.Quote(v)
		}
		s += fmt.Sprintf("; %s only %s", p, strings.Join(quoted, " or "))
	}
	if g.OnExpiry == "finish" {
		s += "; may finish after expiry"
	}
	return s
}
