package compare

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/name"
)

func (c *comparison) note(effect Effect, at strict.Position, format string, args ...any) {
	text := review.Prose(fmt.Sprintf(format, args...))
	c.general = append(c.general, Change{Effect: effect, Position: at, Text: text.Long(), Brief: text.Brief()})
}

// compareIssuers says who is trusted to sign, and how far.
func (c *comparison) compareIssuers() {
	for _, id := range c.issuers() {
		was, is := c.old.Issuer(id), c.now.Issuer(id)
		label := c.issuerName(id)
		begin := len(c.general)
		switch {
		case was == nil:
			c.note(Wider, is.Position, "Leases of %s (%s) now count.", label, id)
		case is == nil:
			c.note(Narrower, was.Position, "Leases of %s (%s) no longer count.", label, id)
		default:
			c.compareIssuer(label, was, is)
		}
		for k := range c.general[begin:] {
			c.general[begin+k].Issuers = []string{label}
		}
	}
}

func (c *comparison) compareIssuer(label string, was, is *file.Issuer) {
	order(c, is.Position, is.MaxLife, was.MaxLife, file.ShowDuration, "Leases of "+label+" may live for %s instead of %s.")
	order(c, is.Position, is.MaxDepth, was.MaxDepth, passedOn, "Leases of "+label+" may be passed on %s instead of %s.")
	until := func(i *file.Issuer) time.Duration { // of the last day; the zero time is never
		if i.Until.IsZero() {
			return 1<<63 - 1
		}
		return time.Duration(i.Until.Unix())
	}
	day := func(v time.Duration) string {
		if v == 1<<63-1 {
			return "without an end"
		}
		return "until the end of " + time.Unix(int64(v)-1, 0).UTC().Format(time.DateOnly)
	}
	order(c, is.Position, until(is), until(was), day, label+" is trusted %s instead of %s.")
	switch {
	case is.HoldersAny && !was.HoldersAny:
		c.note(Wider, is.Position, "%s may name holders that the file does not know: strangers may connect.", label)
	case was.HoldersAny && !is.HoldersAny:
		c.note(Narrower, is.Position, "%s may no longer name holders that the file does not know.", label)
	case !is.HoldersAny:
		more := func(a, b *file.Issuer) (out []string) {
			for _, h := range a.Holders {
				if !b.MayName(h) {
					out = append(out, c.nameOf(h, name.PeerID{}))
				}
			}
			slices.Sort(out)
			return out
		}
		if list := more(is, was); len(list) > 0 {
			c.note(Wider, is.Position, "%s may also name %s.", label, string(review.Listed(list)))
		}
		if list := more(was, is); len(list) > 0 {
			c.note(Narrower, is.Position, "%s may no longer name %s.", label, string(review.Listed(list)))
		}
	}
	c.compareGrantable(label, was, is)
}

// passedOn says how often a lease may be.
func passedOn(depth int) string {
	if depth == 0 {
		return "never"
	}
	return times(depth)
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return count(int64(n)) + " times"
}

func (c *comparison) compareGrantable(label string, was, is *file.Issuer) {
	text := func(i *file.Issuer) []string {
		var out []string
		for _, k := range i.Connectors {
			out = append(out, k.String())
		}
		slices.Sort(out)
		return out
	}
	switch {
	case is.AnyConnector && !was.AnyConnector:
		c.note(Wider, is.Position, "%s may grant any Connector.", label)
		return
	case was.AnyConnector && !is.AnyConnector:
		c.note(Narrower, is.Position, "%s may grant %s alone.", label, string(review.Listed(text(is))))
		return
	}
	without := func(a, b []string) []string {
		return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
	}
	if more := without(text(is), text(was)); len(more) > 0 {
		c.note(Wider, is.Position, "%s may also grant %s.", label, string(review.Listed(more)))
	}
	if less := without(text(was), text(is)); len(less) > 0 {
		c.note(Narrower, is.Position, "%s may no longer grant %s.", label, string(review.Listed(less)))
	}
}

// order notes a value that is higher or lower.
func order[T int | int64 | time.Duration](c *comparison, at strict.Position, is, was T, show func(T) string, format string) {
	switch {
	case is > was:
		c.note(Wider, at, format, show(is), show(was))
	case is < was:
		c.note(Narrower, at, format, show(is), show(was))
	}
}

// comparePeers says who may connect, and which directories names mean.
func (c *comparison) comparePeers() {
	place := func(s *side, section string, label string) strict.Position {
		return s.Doc.Position(s.Doc.Root.Get(section).Key(label))
	}
	ids := func(s *side) map[name.PeerID]string {
		out := map[name.PeerID]string{}
		for label, id := range s.Peers {
			out[id] = label.String()
		}
		return out
	}
	was, is := ids(c.old), ids(c.now)
	for id, label := range is {
		if _, known := was[id]; !known {
			c.general = append(c.general, Change{
				Effect: Wider, Position: place(c.now, "peers", label), Peer: c.nameOf(id, id), PeerID: id,
				Text: fmt.Sprintf("%s may now connect (%s).", label, id),
			})
		}
	}
	for id, label := range was {
		if _, known := is[id]; !known {
			c.general = append(c.general, Change{
				Effect: Narrower, Position: place(c.old, "peers", label), Peer: c.nameOf(id, id), PeerID: id,
				Text: fmt.Sprintf("%s is no longer a peer of the file (%s).", label, id),
			})
		}
	}
	for _, w := range c.now.Workspaces {
		for _, o := range c.old.Workspaces {
			if w.Name == o.Name && w.Path != o.Path {
				c.note(Changed, w.Position, "The workspace %s is %s instead of %s.", w.Name, name.Quote(w.Path), name.Quote(o.Path))
			}
		}
	}
}

// compareGateway compares the limits of the file, which bound every command.
func (c *comparison) compareGateway() {
	was, is := c.old.Gateway(), c.now.Gateway()
	at := func(key string) strict.Position {
		root := c.now.Doc.Root
		if k := root.Get("limits").Key(key); k != nil {
			return c.now.Doc.Position(k)
		}
		return c.now.Doc.Position(root.Key("limits"))
	}
	const format = " is %s instead of %s."
	number := func(key string, is, was int64) {
		show := func(v int64) string {
			if v == unbounded {
				return "without bound"
			}
			return count(v)
		}
		order(c, at(key), is, was, show, "The gateway's limit "+key+format)
	}
	size := func(key string, is, was int64) {
		show := func(v int64) string {
			if v == unbounded {
				return "without bound"
			}
			return file.ShowSize(v)
		}
		order(c, at(key), high(is), high(was), show, "The gateway's limit "+key+format)
	}
	span := func(key string, is, was time.Duration) {
		show := func(v int64) string {
			if v == unbounded {
				return "what commands declare"
			}
			return file.ShowDetached(time.Duration(v))
		}
		if key == "run" {
			plain := show
			show = func(v int64) string { return strings.TrimPrefix(plain(v), "keep ") }
		}
		order(c, at(key), int64(is), int64(was), show, "The gateway's limit "+key+format)
	}
	number("operations", int64(is.Operations), int64(was.Operations))
	number("operations_per_peer", int64(is.OperationsPerPeer), int64(was.OperationsPerPeer))
	number("starts_per_minute", int64(is.StartsPerMinute), int64(was.StartsPerMinute))
	number("denials", int64(is.Denials), int64(was.Denials))
	number("processes", high(int64(is.Processes)), high(int64(was.Processes)))
	number("arguments", int64(is.Arguments), int64(was.Arguments))
	size("stdin", is.Stdin, was.Stdin)
	size("stdout", is.Stdout, was.Stdout)
	size("stderr", is.Stderr, was.Stderr)
	size("memory", is.Memory, was.Memory)
	size("argument_bytes", int64(is.ArgumentBytes), int64(was.ArgumentBytes))
	span("run", time.Duration(high(int64(is.Run))), time.Duration(high(int64(was.Run))))
	span("on_disconnect", is.Detached, was.Detached)
}

const unbounded int64 = 1<<63 - 1

// high makes "no bound" the highest.
func high(v int64) int64 {
	if v == 0 || v == file.Unlimited {
		return unbounded
	}
	return v
}
