package install

import (
	"context"
	"errors"

	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
	"github.com/rs/zerolog"
)

// Errors of the store, for errors.Is.
var (
	// ErrNotInstalled: there is no such Connector or version.
	ErrNotInstalled = errors.New("not installed")
	// ErrConflict: the version is installed with another content.
	ErrConflict = errors.New("another release of this version is installed")
	// ErrNoRuntime: no installed interpreter fits, or it has been removed.
	ErrNoRuntime = errors.New("no such runtime")
	// ErrNoRegistry: something must be fetched and no package registry is known.
	ErrNoRegistry = errors.New("no package registry: give --registry URL or set NPM_CONFIG_REGISTRY")
	// ErrTampered: bytes on disk differ from those that were installed.
	ErrTampered = errors.New("installed files were changed")
)

// Runner runs one program to its end; see npm.Runner. NewRunner makes one from a
// process transport.
type Runner = npm.Runner

// Progress is told what a long call does: a stage in words ("fetch npm"), and done
// of total bytes where they are known, else 0. It is called from one goroutine at
// a time and must not block. A nil Progress is told nothing.
type Progress func(stage string, done, total int64)

// Config is what Open needs. It must not be changed afterwards.
type Config struct {
	Dir      string         // absolute; made with mode 0700 if absent
	Log      zerolog.Logger // the zero value is silent
	Runner   Runner         // runs npm; nil refuses what needs npm
	Registry string         // base URL, https (http on loopback only); "" is ErrNoRegistry where one is needed
	CAFile   string         // absolute path of PEM certificates trusted besides the system's; "" for none
	Proxy    string         // URL of the HTTP proxy for fetching; "" for none
}

// Source is a Connector to add.
type Source struct {
	Path    string // absolute path of a directory, .zip, .tar.gz or .tgz
	Replace bool   // allow replacing the same version with other content
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
type Store struct{ cfg Config }

// Open opens the store in c.Dir.
func Open(c Config) (*Store, error) { return nil, errors.ErrUnsupported }

// Add imports a Connector, installs what it needs and makes it current.
func (s *Store) Add(ctx context.Context, src Source, p Progress) (Release, error) {
	return Release{}, errors.ErrUnsupported
}

// Releases lists what is installed, by key and version.
func (s *Store) Releases() ([]Release, error) { return nil, errors.ErrUnsupported }

// Release returns one installed release, or ErrNotInstalled.
func (s *Store) Release(key name.ConnectorKey, version name.Version) (Release, error) {
	return Release{}, errors.ErrUnsupported
}

// Remove uninstalls one release, or all of key where version is zero.
func (s *Store) Remove(ctx context.Context, key name.ConnectorKey, version name.Version) error {
	return errors.ErrUnsupported
}

// Verify hashes every file of an installed release and of its interpreter again.
func (s *Store) Verify(ctx context.Context, key name.ConnectorKey, version name.Version) error {
	return errors.ErrUnsupported
}
