package mcp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/lendcli/lend/gateway/client/mcp/form"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

const (
	// maxTools bounds the tools of a server; what comes after them, by name, is left out.
	maxTools = 1024
	// maxToolName is what the APIs of models take: letters, digits, '_' and '-'.
	maxToolName = 64
	hashLetters = 8
)

// tool is one tool that is offered.
type tool struct {
	from  *held
	lent  Lent
	form  *form.Form
	local bool // the caller has a Connector of its own with this command
	shown *sdk.Tool
	text  []byte // shown, in JSON
}

// target is what one tool runs.
type target struct {
	gateway   name.PeerID
	connector name.ConnectorKey
	version   name.Version
	command   name.Command
}

func (l *Lent) target() target {
	return target{l.Gateway, l.Entry.Connector, l.Entry.Version, l.Entry.Command}
}

// plainName is KEY_COMMAND in the letters that a name may have.
func (t target) plainName() string {
	return strings.ReplaceAll(t.connector.String()+"_"+t.command.String(), ".", "_")
}

// hashedName is a name that nothing else has.
func (t target) hashedName() string {
	sum := sha256.Sum256([]byte(t.gateway.String() + " " + t.connector.String() + " " + t.version.String() + " " + t.command.String()))
	plain := t.plainName()
	return plain[:min(len(plain), maxToolName-1-hashLetters)] + "_" + hex.EncodeToString(sum[:])[:hashLetters]
}

// nameTools gives each target a name that does not depend on the order: KEY_COMMAND, or
// with a part of a hash where that is too long, or means several.
func nameTools(targets []target) map[target]string {
	times := map[string]int{}
	for _, t := range targets {
		times[t.plainName()]++
	}
	out := map[target]string{}
	for _, t := range targets {
		out[t] = t.plainName()
		if times[out[t]] > 1 || len(out[t]) > maxToolName {
			out[t] = t.hashedName()
		}
	}
	return out
}

// toolsOf makes the tools of what is lent. What two lenders lend on one gateway is one
// command, of the one that lends it for longer.
func (s *Server) toolsOf(ctx context.Context, all []*held) map[string]*tool {
	by := map[target]*tool{}
	var targets []target
	for _, h := range all {
		for _, l := range h.lent {
			k := l.target()
			have := by[k]
			if have == nil {
				targets = append(targets, k)
			}
			if have == nil || l.Until.After(have.lent.Until) {
				by[k] = &tool{from: h, lent: l}
			}
		}
	}
	names := nameTools(targets)
	slices.SortFunc(targets, func(a, b target) int { return cmp.Compare(names[a], names[b]) })
	own := s.ownCommands(ctx, targets)
	out := map[string]*tool{}
	for _, k := range targets {
		t := by[k]
		t.local = own[ownCommand{k.connector, k.command}]
		if len(out) >= maxTools {
			s.log.Warn().Int("missing", len(targets)-maxTools).Msg("too many tools")
			break
		}
		if err := t.show(names[k], names[k] != k.plainName()); err != nil {
			s.log.Warn().Str("connector", k.connector.String()).Str("command", k.command.String()).Str("problem", name.Show(err.Error())).Msg("command is no tool")
			continue
		}
		out[names[k]] = t
	}
	return out
}

// show describes the tool. Its text is the catalogue's, its schema our own. Where one is
// not alone with its name, it is told from the others by what is said.
func (t *tool) show(called string, shared bool) (err error) {
	e := &t.lent.Entry
	if t.form, err = form.Read(*e); err != nil {
		return err
	}
	schema, err := t.form.Schema(t.local)
	if err != nil {
		return err
	}
	title := e.Connector.String() + " " + e.Command.String()
	description := cmp.Or(e.Summary, title)
	if shared {
		which := " (" + e.Connector.String() + " " + e.Version.String() + ", gateway " + t.lent.Gateway.String() + ")"
		title, description = title+which, description+which
	}
	t.shown = &sdk.Tool{
		Name: called, Title: title, Description: description, InputSchema: schema, OutputSchema: json.RawMessage(outputSchema),
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: e.Effect == "read", Title: title},
		Meta:        sdk.Meta{"lend/connector": e.Connector.String(), "lend/version": e.Version.String(), "lend/command": e.Command.String(), "lend/gateway": t.lent.Gateway.String()},
	}
	t.text, err = json.Marshal(t.shown)
	return err
}

// ownCommand is a command of a Connector of the caller's own.
type ownCommand struct {
	connector name.ConnectorKey
	command   name.Command
}

// ownCommands are those among the targets that the caller's own Connectors have.
func (s *Server) ownCommands(ctx context.Context, targets []target) map[ownCommand]bool {
	out := map[ownCommand]bool{}
	if s.config.Local == nil {
		return out
	}
	asked := map[name.ConnectorKey]bool{}
	for _, t := range targets {
		if asked[t.connector] {
			continue
		}
		asked[t.connector] = true
		entries, err := s.config.Local.Catalog(ctx, t.connector)
		if err != nil {
			s.log.Debug().Str("connector", t.connector.String()).Str("problem", name.Show(err.Error())).Msg("own connector not listed")
			continue
		}
		for _, e := range entries {
			out[ownCommand{e.Connector, e.Command}] = true
		}
	}
	return out
}

// own finds the caller's own command for a tool, as it is now.
func (s *Server) own(ctx context.Context, t *tool) (protocol.CatalogEntry, *form.Form, error) {
	if s.config.Local == nil {
		return protocol.CatalogEntry{}, nil, errNoOwn
	}
	entries, err := s.config.Local.Catalog(ctx, t.lent.Entry.Connector)
	if err != nil {
		return protocol.CatalogEntry{}, nil, err
	}
	var found []protocol.CatalogEntry
	for _, e := range entries {
		if e.Connector == t.lent.Entry.Connector && e.Command == t.lent.Entry.Command {
			found = append(found, e)
		}
	}
	if len(found) != 1 {
		return protocol.CatalogEntry{}, nil, errNoOwn
	}
	sh, err := form.Read(found[0])
	return found[0], sh, err
}

var errNoOwn = errors.New(form.AuthorityKey + ": no such command of a connector of this machine's own; nothing is run in its place")

// offer makes want the tools of the server. Clients are told by the library.
func (s *Server) offer(want map[string]*tool) {
	s.mu.Lock()
	have := s.tools
	s.tools = want
	s.mu.Unlock()
	var gone []string
	for n := range have {
		if want[n] == nil {
			gone = append(gone, n)
		}
	}
	if len(gone) > 0 {
		s.server.RemoveTools(gone...)
	}
	for n, t := range want {
		if old := have[n]; old == nil || !bytes.Equal(old.text, t.text) {
			s.server.AddTool(t.shown, s.call)
		}
	}
}
