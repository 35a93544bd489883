package manifest

import (
	"time"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// Of the file.
const (
	// FileName is the manifest's place in a Connector's directory or archive: its root.
	FileName = "connector-manifest.json"
	// SchemaVersion is the only value of schemaVersion.
	SchemaVersion = "1"
	// MaxBytes bounds a manifest file, in bytes.
	MaxBytes = 1 << 20
)

// Manifest is one Connector release as its author declares it. Parse makes it;
// holders must not change what it refers to.
type Manifest struct {
	Key         name.ConnectorKey
	Version     name.Version
	DisplayName string // one line, 1 to 256 bytes
	Description string // at most 16 KiB
	// IconURL is an https address of at most 2048 bytes that nothing here fetches; ""
	// is none.
	IconURL string
	// Permissions are what the author says that the Connector does with the account,
	// as "name" or "name:scope", sorted, at most 64. They are shown; nothing enforces them.
	Permissions []string
	// Aliases are other names by which an agent may look for the Connector, at most 12.
	Aliases  []string
	CLI      CLI
	MCP      *MCP      // nil: the Connector has no MCP server
	Builtin  *Builtin  // nil: it is no part of the host
	Secrets  []Secret  // at most 64, names and variables unique
	Settings []Setting // at most 64, names and variables unique
	Login    *Login    // nil: the CLI has no login of its own

	canonical []byte
}

// Kind says what a Connector's CLI is and so how it starts.
type Kind string

// The kinds of CLI.
const (
	// KindNative is an executable file of the artifact.
	KindNative Kind = "native"
	// KindScript is a file of the artifact that a verified interpreter runs.
	KindScript Kind = "script"
	// KindNPM is the bin of a package that npm installs from the artifact's lock.
	KindNPM Kind = "npm"
)

// CLI is the command-line program of a Connector. It is zero where a manifest has
// none: For refuses such a one.
type CLI struct {
	// Implementation is what runs. While Targets has entries it is zero, until For
	// takes one of them.
	Implementation
	// Targets holds one implementation for each system, by names such as "linux-x64";
	// nil where one implementation is for all.
	Targets map[string]Implementation
	// Probe asks whether the CLI is ready, or is nil. It is not in the contract.
	Probe *Probe
	// Contract is the public surface, the same for all targets: command, fixed
	// arguments, variables that parameters may set, timeout and commands.
	Contract argv.Contract
}

// Probe is one run of the CLI that tells whether it is ready: exit status 0.
type Probe struct {
	Arguments []string      // 1 to 32, 16 KiB together; they come after Contract.Arguments
	Timeout   time.Duration // 100 ms to 30 s
}

// Implementation is what runs for a CLI.
type Implementation struct {
	Kind Kind
	// Entrypoint is the safe relative path of the executable or script in the
	// artifact; "" for KindNPM.
	Entrypoint string
	// SHA256 is the entrypoint's, 64 lower-case hexadecimal digits; "" means that
	// the manifest pins none (the release digest covers the file all the same).
	SHA256 string
	// Runtime is the interpreter that KindScript and KindNPM need, else nil.
	Runtime *Runtime
	// Package is set for KindNPM, else nil.
	Package *Package
	// Archive is where a KindNative program comes from that is not in the artifact, else
	// nil.
	Archive *Archive
}

// Runtime asks for a verified interpreter.
type Runtime struct {
	Profile string // the runtime's name: an identifier such as "node" or "python3"
	Range   Range  // which versions; the zero Range accepts all
	ABI     string // exactly this one, as in "python3-linux-x64"; "" accepts all
}

// Package is an exact npm package.
type Package struct {
	Name      string // "json5", "@scope/name"
	Version   string // x.y.z with an optional prerelease
	Integrity string // "sha512-" and the base64 of 64 bytes
	Bin       string // which of the package's bins; "" if it has one
	Native    string // safe relative path of an executable in the package, instead of a bin
	Lock      string // safe relative path of the lock in the artifact
	Lifecycle *Lifecycle
}

// Lifecycle is one script of the package that runs after its installation; no other
// script of any package does.
type Lifecycle struct {
	Event      string   `json:"event"`      // "postinstall"
	Entrypoint string   `json:"entrypoint"` // safe relative path of a JavaScript file in the package
	Arguments  []string `json:"arguments,omitempty"`
}

// Secret declares a value that the owner sets per connection and the child gets as
// a variable.
type Secret struct {
	Name        string // an identifier
	Env         string // a variable name
	Description string
}

// Setting declares a plain value that the owner may set per connection.
type Setting struct {
	Name        string // an identifier
	Env         string // a variable name
	Description string
	Default     string // "" means that the variable is absent unless set
}

// Login is how the CLI logs in by itself, run locally in a connection's home.
type Login struct {
	Arguments []string
}
