package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lendcli/lend/localhost/internal/strictjson"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// Bounds of a manifest's parts.
const (
	maxCommands  = 256
	maxArguments = 64   // fixed or login arguments
	maxArgument  = 4096 // bytes
	maxVariables = 64
	maxDeclared  = 64 // secrets, settings
	minTimeout   = 100 * time.Millisecond
	maxTimeout   = 24 * time.Hour

	maxProbeArguments = 32
	maxProbeBytes     = 16 << 10 // of its arguments together
	maxProbeTimeout   = 30 * time.Second
	maxPermissions    = 64
	maxAliases        = 12
	maxAlias          = 48 // characters
	maxIconURL        = 2048
)

// InvalidError is one fault of a manifest. Parse returns all that it finds, joined.
type InvalidError struct {
	Path string // "cli.package.integrity"
	Msg  string
}

func (e *InvalidError) Error() string { return e.Path + ": " + e.Msg }

type document struct {
	SchemaVersion string            `json:"schemaVersion"`
	Key           string            `json:"key"`
	Version       string            `json:"version"`
	DisplayName   string            `json:"displayName"`
	Description   string            `json:"description,omitempty"`
	IconURL       *string           `json:"iconUrl,omitempty"`
	Permissions   []string          `json:"permissions,omitempty"`
	AgentRouting  *routingDocument  `json:"agentRouting,omitempty"`
	CLI           *cliDocument      `json:"cli,omitempty"`
	MCP           *mcpDocument      `json:"mcp,omitempty"`
	Builtin       *builtinDocument  `json:"builtin,omitempty"`
	Secrets       []secretDocument  `json:"secrets,omitempty"`
	Settings      []settingDocument `json:"settings,omitempty"`
	Login         *loginDocument    `json:"login,omitempty"`
}

type routingDocument struct {
	Aliases []string `json:"aliases"`
}

type cliDocument struct {
	Command     string                            `json:"command"`
	Kind        Kind                              `json:"kind,omitempty"`
	Entrypoint  string                            `json:"entrypoint,omitempty"`
	SHA256      string                            `json:"sha256,omitempty"`
	Runtime     *runtimeDocument                  `json:"runtime,omitempty"`
	Package     *packageDocument                  `json:"package,omitempty"`
	Archive     *Archive                          `json:"archive,omitempty"`
	Targets     map[string]implementationDocument `json:"targets,omitempty"`
	Probe       *probeDocument                    `json:"readinessProbe,omitempty"`
	Arguments   []string                          `json:"arguments,omitempty"`
	Environment []string                          `json:"environment,omitempty"`
	Timeout     string                            `json:"timeout,omitempty"`
	Commands    map[string]argv.Declaration       `json:"commands,omitempty"`
}

// implementationDocument is what differs from one target to another.
type implementationDocument struct {
	Kind       Kind             `json:"kind"`
	Entrypoint string           `json:"entrypoint,omitempty"`
	SHA256     string           `json:"sha256,omitempty"`
	Runtime    *runtimeDocument `json:"runtime,omitempty"`
	Package    *packageDocument `json:"package,omitempty"`
	Archive    *Archive         `json:"archive,omitempty"`
}

type probeDocument struct {
	Arguments []string `json:"arguments"`
	Timeout   string   `json:"timeout"`
}

type runtimeDocument struct {
	Profile string `json:"profile"`
	Range   string `json:"range,omitempty"`
	ABI     string `json:"abi,omitempty"`
}

type packageDocument struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	Integrity string `json:"integrity"`
	Bin       string `json:"bin,omitempty"`
	Native    string `json:"native,omitempty"`
	Lock      string `json:"lock"`

	Lifecycle *Lifecycle `json:"lifecycle,omitempty"`
}

type secretDocument struct {
	Name        string `json:"name"`
	Env         string `json:"env"`
	Description string `json:"description,omitempty"`
}

type settingDocument struct {
	Name        string `json:"name"`
	Env         string `json:"env"`
	Description string `json:"description,omitempty"`
	Default     string `json:"default,omitempty"`
}

type loginDocument struct {
	Arguments []string `json:"arguments,omitempty"`
}

// Parse reads a manifest of at most MaxBytes. It refuses unknown, misspelt and
// duplicate fields, null, deep nesting, invalid UTF-8 and trailing data; the error
// joins *InvalidError values, or says where the document is not what JSON allows.
// On error the Manifest is the zero value.
func Parse(data []byte) (Manifest, error) {
	var d document
	if err := strictjson.Decode(data, MaxBytes, &d); err != nil {
		return Manifest{}, fmt.Errorf("parse %s: %w", FileName, err)
	}
	var c checker
	m := c.manifest(&d)
	if err := errors.Join(c.errs...); err != nil {
		return Manifest{}, fmt.Errorf("parse %s: %w", FileName, err)
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return Manifest{}, fmt.Errorf("parse %s: %w", FileName, err)
	}
	canonical, err := argv.CanonicalJSON(tree)
	if err != nil {
		return Manifest{}, fmt.Errorf("parse %s: %w", FileName, err)
	}
	m.canonical = canonical
	return m, nil
}

// Canonical returns the document in the canonical form of RFC 8785. Parsing it
// again gives the same Manifest.
func (m Manifest) Canonical() []byte { return slices.Clone(m.canonical) }

// checker collects faults, so that an author sees all of them at once.
type checker struct{ errs []error }

func (c *checker) bad(path, format string, args ...any) {
	c.errs = append(c.errs, &InvalidError{path, fmt.Sprintf(format, args...)})
}

func (c *checker) err(path string, err error) {
	if err != nil {
		c.bad(path, "%s", err.Error())
	}
}

func (c *checker) manifest(d *document) Manifest {
	m := Manifest{DisplayName: d.DisplayName, Description: d.Description}
	if d.SchemaVersion != SchemaVersion {
		c.bad("schemaVersion", "want %q, not %s", SchemaVersion, name.Quote(d.SchemaVersion))
	}
	var err error
	m.Key, err = name.ParseConnectorKey(d.Key)
	c.err("key", err)
	if err == nil {
		c.err("key", CheckPath(d.Key))
	}
	m.Version, err = name.ParseVersion(d.Version)
	c.err("version", err)
	if err == nil {
		c.err("version", CheckPath(d.Version))
	}
	c.line("displayName", d.DisplayName, 256)
	c.text("description", d.Description, 16<<10)
	c.about(d, &m)
	c.interfaces(d, &m)
	c.declared(d, &m)
	if d.Login != nil {
		if d.CLI == nil {
			c.bad("login", "without a cli nothing logs in")
		}
		c.arguments("login.arguments", d.Login.Arguments)
		m.Login = &Login{Arguments: slices.Clone(d.Login.Arguments)}
	}
	return m
}

func (c *checker) declared(d *document, m *Manifest) {
	if len(d.Secrets) > maxDeclared {
		c.bad("secrets", "more than %d", maxDeclared)
	}
	if len(d.Settings) > maxDeclared {
		c.bad("settings", "more than %d", maxDeclared)
	}
	names, variables := map[string]bool{}, map[string]bool{}
	for _, v := range m.CLI.Contract.Environment {
		variables[v] = true // what a caller may set is not the owner's to keep secret
	}
	for i, s := range d.Secrets {
		c.declaration(fmt.Sprintf("secrets[%d]", i), s.Name, s.Env, s.Description, names, variables)
		m.Secrets = append(m.Secrets, Secret(s))
	}
	for i, s := range d.Settings {
		path := fmt.Sprintf("settings[%d]", i)
		c.declaration(path, s.Name, s.Env, s.Description, names, variables)
		c.text(path+".default", s.Default, maxArgument)
		m.Settings = append(m.Settings, Setting(s))
	}
}

func (c *checker) declaration(path, n, env, description string, names, variables map[string]bool) {
	c.identifier(path+".name", n)
	c.variable(path+".env", env)
	c.text(path+".description", description, 1024)
	if names[n] {
		c.bad(path+".name", "declared twice")
	}
	if variables[env] {
		c.bad(path+".env", "declared twice")
	}
	names[n], variables[env] = true, true
}
