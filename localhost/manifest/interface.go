package manifest

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lendcli/lend/protocol/name"
)

// MCP declares an MCP server: a program of the artifact, or a service elsewhere of
// which only the reference is here. It is a declaration: see Manifest.For.
type MCP struct {
	Kind string // "managed_stdio" or "remote_streamable_http"
	Name string // of the server: an identifier

	// Of managed_stdio: a file of the artifact that a verified node or python runs.
	Runtime    *Runtime
	Entrypoint string // safe relative path
	Arguments  []string

	// Of remote_streamable_http: the address is the host's to know.
	ProtocolVersion string // "2026-07-28"
	BindingRef      string // lower-case words with single '.' or '-', so that it is never an address
	ContractVersion int    // 1
	ContractHash    string // "sha256:" and 64 lower-case hexadecimal digits
}

// The kinds of MCP server, and what a remote one has to say.
const (
	managedStdio = "managed_stdio"
	remoteHTTP   = "remote_streamable_http"

	remoteProtocol = "2026-07-28"
	remoteContract = 1
)

// Builtin declares that the host itself implements the Connector.
type Builtin struct {
	Provider   string   // an identifier
	Interfaces []string // "cli", "mcp" or both, sorted
}

type mcpDocument struct {
	Kind       string           `json:"kind"`
	Name       string           `json:"name"`
	Runtime    *runtimeDocument `json:"runtime,omitempty"`
	Entrypoint string           `json:"entrypoint,omitempty"`
	Arguments  []string         `json:"arguments,omitempty"`

	ProtocolVersion string   `json:"protocolVersion,omitempty"`
	BindingRef      string   `json:"bindingRef,omitempty"`
	ContractVersion int      `json:"contractVersion,omitempty"`
	ContractHash    string   `json:"bindingContractHash,omitempty"`
	Capabilities    []string `json:"requiredCapabilities,omitempty"`
}

type builtinDocument struct {
	Provider   string   `json:"provider"`
	Interfaces []string `json:"interfaces"`
}

var (
	bindingRef   = regexp.MustCompile(`^[a-z0-9]+([.-][a-z0-9]+)*$`)
	contractHash = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

const maxBindingRef = 128

// UnsupportedError says that a manifest is a good one, and that this system or this
// version of lend cannot run what it declares.
type UnsupportedError struct {
	Path string // "mcp", "cli.targets"
	Msg  string
}

func (e *UnsupportedError) Error() string { return e.Path + ": " + e.Msg }

// For returns m as it is on one system, such as "linux-x64": of an implementation per
// target, exactly that one. There is no fallback. Whatever m declares is run, or the
// error is an *UnsupportedError: nothing is left out silently. Doing it again for the
// same target changes nothing.
func (m Manifest) For(target string) (Manifest, error) {
	switch {
	case m.Builtin != nil:
		return Manifest{}, &UnsupportedError{"builtin", "this lend has no provider " + name.Quote(m.Builtin.Provider) + ": it has none at all"}
	case m.MCP != nil:
		return Manifest{}, &UnsupportedError{"mcp", "this lend runs no MCP servers (kind " + name.Quote(m.MCP.Kind) + ")"}
	}
	if m.CLI.Targets == nil {
		return m, nil
	}
	i, ok := m.CLI.Targets[target]
	if !ok {
		has := strings.Join(slices.Sorted(maps.Keys(m.CLI.Targets)), ", ")
		return Manifest{}, &UnsupportedError{"cli.targets", "there is nothing for this system, " + name.Quote(target) + ": it is for " + has}
	}
	m.CLI.Implementation = i
	return m, nil
}

// interfaces checks what the Connector offers: a cli, an MCP server, or both; or what
// the host has.
func (c *checker) interfaces(d *document, m *Manifest) {
	if d.CLI == nil && d.MCP == nil && d.Builtin == nil {
		c.bad("cli", "it is missing")
	}
	if d.CLI != nil {
		m.CLI = c.cli(d.CLI)
	}
	if d.MCP != nil {
		m.MCP = c.mcp(d.MCP)
	}
	if d.Builtin != nil {
		m.Builtin = c.builtin(d.Builtin)
		if d.CLI != nil || d.MCP != nil {
			c.bad("builtin", "not with a cli or mcp of the artifact")
		}
	}
}

func (c *checker) mcp(d *mcpDocument) *MCP {
	c.identifier("mcp.name", d.Name)
	remote := d.ProtocolVersion != "" || d.BindingRef != "" || d.ContractVersion != 0 || d.ContractHash != "" || d.Capabilities != nil
	local := d.Runtime != nil || d.Entrypoint != "" || d.Arguments != nil
	switch {
	case d.Kind == managedStdio && remote, d.Kind == remoteHTTP && local:
		c.bad("mcp", "it has fields of the other kind")
	case d.Kind == managedStdio:
		return c.managed(d)
	case d.Kind == remoteHTTP:
		return c.remote(d)
	default:
		c.bad("mcp.kind", "want %q or %q, not %s", managedStdio, remoteHTTP, name.Quote(d.Kind))
	}
	return nil
}

func (c *checker) managed(d *mcpDocument) *MCP {
	out := &MCP{Kind: d.Kind, Name: d.Name, Entrypoint: d.Entrypoint, Arguments: slices.Clone(d.Arguments)}
	c.err("mcp.entrypoint", CheckPath(d.Entrypoint))
	if d.Entrypoint == FileName {
		c.bad("mcp.entrypoint", "it is the manifest")
	}
	c.arguments("mcp.arguments", d.Arguments)
	if d.Runtime == nil {
		c.bad("mcp.runtime", "it is missing: a server needs a verified interpreter")
		return out
	}
	out.Runtime = c.runtime("mcp.runtime", d.Runtime)
	if language := strings.TrimRight(d.Runtime.Profile, "0123456789."); language != "node" && language != "python" {
		c.bad("mcp.runtime.profile", "want a node or a python, such as \"node\" or \"python3\"")
	}
	return out
}

func (c *checker) remote(d *mcpDocument) *MCP {
	if d.ProtocolVersion != remoteProtocol {
		c.bad("mcp.protocolVersion", "want %q", remoteProtocol)
	}
	if len(d.BindingRef) > maxBindingRef || !bindingRef.MatchString(d.BindingRef) {
		c.bad("mcp.bindingRef", "want lower-case letters and digits with single '.' and '-' between them, at most %d, and never an address", maxBindingRef)
	}
	if d.ContractVersion != remoteContract {
		c.bad("mcp.contractVersion", "want %d", remoteContract)
	}
	if !contractHash.MatchString(d.ContractHash) {
		c.bad("mcp.bindingContractHash", "want \"sha256:\" and 64 lower-case hexadecimal digits")
	}
	if !slices.Equal(d.Capabilities, []string{"tools"}) {
		c.bad("mcp.requiredCapabilities", "want exactly [\"tools\"]")
	}
	return &MCP{
		Kind: d.Kind, Name: d.Name, ProtocolVersion: d.ProtocolVersion, BindingRef: d.BindingRef,
		ContractVersion: d.ContractVersion, ContractHash: d.ContractHash,
	}
}

func (c *checker) builtin(d *builtinDocument) *Builtin {
	c.identifier("builtin.provider", d.Provider)
	all := slices.Sorted(slices.Values(d.Interfaces))
	if n := len(all); n == 0 || n != len(slices.Compact(slices.Clone(all))) ||
		slices.ContainsFunc(all, func(s string) bool { return s != "cli" && s != "mcp" }) {
		c.bad("builtin.interfaces", "want \"cli\", \"mcp\" or both")
	}
	return &Builtin{Provider: d.Provider, Interfaces: all}
}
