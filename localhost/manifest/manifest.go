package manifest

import (
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// FileName is the manifest's place in a Connector's directory or archive: its root.
const FileName = "connector-manifest.json"

// SchemaVersion is the only value of schemaVersion.
const SchemaVersion = "1"

// MaxBytes bounds a manifest file, in bytes.
const MaxBytes = 1 << 20

// Manifest is one Connector release as its author declares it. Parse makes it;
// holders must not change what it refers to.
type Manifest struct {
	Key         name.ConnectorKey
	Version     name.Version
	DisplayName string // one line, 1 to 256 bytes
	Description string // at most 16 KiB
	CLI         CLI
	Secrets     []Secret  // at most 64, names and variables unique
	Settings    []Setting // at most 64, names and variables unique
	Login       *Login    // nil: the CLI has no login of its own

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

// CLI is the command-line program of a Connector.
type CLI struct {
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
	// Contract is the public surface: command, fixed arguments, variables that
	// parameters may set, timeout and commands.
	Contract argv.Contract
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
