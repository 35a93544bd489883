package install

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/download"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/install/interpreter"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/localhost/signature"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/rs/zerolog"
)

// Errors of the store, for errors.Is.
var (
	// ErrNotInstalled: there is no such Connector or version.
	ErrNotInstalled = depot.ErrNotInstalled
	// ErrConflict: the version is installed with another content.
	ErrConflict = errors.New("another release of this version is installed")
	// ErrNoRuntime: no installed interpreter fits, or it has been removed.
	ErrNoRuntime = errors.New("no such runtime")
	// ErrNoRegistry: something must be fetched and no package registry is known.
	ErrNoRegistry = interpreter.ErrNoRegistry
	// ErrTampered: bytes on disk differ from those that were installed.
	ErrTampered = errors.New("installed files were changed")
)

// Runner runs one program to its end; see npm.Runner. NewRunner makes one from a
// process transport.
type Runner = npm.Runner

// Progress is told what a long call does: a stage in words ("fetch node"), and done
// of total bytes where they are known, else 0. It is called from one goroutine at
// a time and must not block. A nil Progress is told nothing.
type Progress func(stage string, done, total int64)

func (p Progress) tell(stage string, done, total int64) {
	if p != nil {
		p(stage, done, total)
	}
}

// at is p for one stage.
func (p Progress) at(stage string) func(done, total int64) {
	p.tell(stage, 0, 0)
	return func(done, total int64) { p.tell(stage, done, total) }
}

// Config is what Open needs. It must not be changed afterwards.
type Config struct {
	Dir      string         // absolute; made with mode 0700 if absent
	Log      zerolog.Logger // the zero value is silent
	Runner   Runner         // runs npm; nil refuses what needs npm
	Registry string         // base URL, https (http on loopback only); "" is ErrNoRegistry where one is needed
	CAFile   string         // absolute path of PEM certificates trusted besides the system's; "" for none
	Fetch    Fetcher        // fetches archives that releases name; nil is ErrNoArchive where one is needed
	AsIs     bool           // leave at opening what dead processes left behind; Collect finds it
	Proxy    string         // URL of the HTTP proxy for fetching; "" for none

	// Publishers is the owner's list of who may sign, and of what has to be signed; nil
	// trusts nobody and requires nothing.
	Publishers *signature.File
}

// Release is one installed release. It is a value; holders must not change what it
// refers to.
type Release struct {
	Manifest     manifest.Manifest
	Digest       string // 64 lower-case hexadecimal digits; covers manifest and artifact
	Contract     argv.Contract
	ContractHash string // "sha256:" and 64 lower-case hexadecimal digits
	Runtime      string // "node@22.23.5", "" for a native executable
	HasScripts   bool   // some package of the lock has install scripts, which did not run
}

// Store is the installed Connectors and interpreters in one directory. All methods
// may be called from any goroutine, and several processes may share the directory.
type Store struct {
	cfg       Config
	depot     *depot.Depot
	downloads *download.Cache

	mu       sync.Mutex                    // guards runtimes
	runtimes map[string]*artifact.Snapshot // hashed in this process, by directory
}

// Open opens the store in c.Dir and takes away what dead processes left behind in
// it. The caller must Close the Store.
func Open(c Config) (*Store, error) {
	open := depot.Open
	if c.AsIs {
		open = depot.OpenAsIs
	}
	d, err := open(c.Dir, c.Log)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	cache, err := download.Open(d.Path(depot.Downloads))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open store: %w", err), d.Close())
	}
	return &Store{cfg: c, depot: d, downloads: cache, runtimes: make(map[string]*artifact.Snapshot)}, nil
}

// Close lets go of the directory. A Launch stays usable until its own Close.
func (s *Store) Close() error { return errors.Join(s.downloads.Close(), s.depot.Close()) }

// Names inside the directory of one release or runtime.
const (
	artifactTree = "artifact" // a Connector's own files
	packageTree  = "package"  // what npm installed for it, or its archive brought
	runtimeTree  = "tree"     // a runtime's files
)
