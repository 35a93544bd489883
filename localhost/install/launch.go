package install

import "errors"

// Launch is a release made ready to start any number of times. It holds the
// release's files on disk until Close. Its methods may be called from any
// goroutine; its fields must not be changed.
type Launch struct {
	// Path is the absolute path of the executable: the artifact's own, or the
	// verified interpreter.
	Path string
	// Prefix comes right after argv[0]: the script of an interpreter, else nothing.
	Prefix []string
	// Env is what the runtime needs in the child's environment, as NAME=VALUE.
	Env []string
	// ContractDir is the absolute path of the read-only artifact.
	ContractDir string
}

// Launch prepares r to run: it hashes every file now, so call it once per route.
// The caller must Close the result. Errors: ErrNotInstalled, ErrTampered, ErrNoRuntime.
func (s *Store) Launch(r Release) (*Launch, error) { return nil, errors.ErrUnsupported }

// Verify is to be called before every start: it compares the identity of every
// file with what was hashed, hashes again what differs, and returns ErrTampered if
// bytes, modes or names have changed. An unchanged tree costs one lstat per file.
func (l *Launch) Verify() error { return errors.ErrUnsupported }

// Close lets go of the files. It is idempotent.
func (l *Launch) Close() error { return nil }
