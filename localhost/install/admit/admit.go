package admit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strings"

	"github.com/lendcli/lend/localhost/artifact"
	header "github.com/lendcli/lend/localhost/binary"
	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install/interpreter"
	"github.com/lendcli/lend/localhost/manifest"
)

// Native refuses a script in the place of an executable: the system would look
// up an interpreter that nobody verified. So is an executable of another system. Errors are
// *artifact.RefusedError.
func Native(tree fs.FS, p string) error {
	f, err := tree.Open(p)
	if err != nil {
		return &artifact.RefusedError{Path: p, Reason: "the manifest's entrypoint is not there"}
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, header.HeadSize)
	n, err := io.ReadFull(f, head)
	if n < 2 || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return &artifact.RefusedError{Path: p, Reason: "it is no executable"}
	}
	if string(head[:2]) == "#!" {
		return &artifact.RefusedError{Path: p, Reason: "it is a script: say kind \"script\" and a runtime, so that its interpreter is verified"}
	}
	h, ok := header.Read(head[:n])
	if ok && !h.RunsOn(runtime.GOOS, runtime.GOARCH) && (runtime.GOARCH != "amd64" || !h.RunsOn(runtime.GOOS, "386")) {
		return &artifact.RefusedError{Path: p, Reason: fmt.Sprintf("it is an executable of another system (%s %s), and this is %s", h.Format, strings.Join(h.Archs, ", "), interpreter.Target())}
	}
	return nil
}

// Variables refuses early what every start would refuse: a variable that a
// connection takes from nobody. Errors are *manifest.InvalidError.
func Variables(m manifest.Manifest) error {
	for i, v := range m.CLI.Contract.Environment {
		if connection.Reserved(v) {
			return &manifest.InvalidError{Path: fmt.Sprintf("cli.environment[%d]", i), Msg: v + " is reserved"}
		}
	}
	for i, v := range m.Secrets {
		if connection.Reserved(v.Env) {
			return &manifest.InvalidError{Path: fmt.Sprintf("secrets[%d].env", i), Msg: v.Env + " is reserved"}
		}
	}
	for i, v := range m.Settings {
		if connection.Reserved(v.Env) {
			return &manifest.InvalidError{Path: fmt.Sprintf("settings[%d].env", i), Msg: v.Env + " is reserved"}
		}
	}
	return nil
}

// NoManifest is what refuses a source without a manifest.
func NoManifest() error {
	return &artifact.RefusedError{Reason: "there is no " + manifest.FileName + " at its root"}
}

// Manifest reads and checks the manifest at the root of a tree.
func Manifest(tree fs.FS) (manifest.Manifest, error) {
	f, err := tree.Open(manifest.FileName)
	if errors.Is(err, fs.ErrNotExist) {
		return manifest.Manifest{}, NoManifest()
	}
	if err != nil {
		return manifest.Manifest{}, err
	}
	defer func() { _ = f.Close() }() // only read
	b, err := io.ReadAll(io.LimitReader(f, manifest.MaxBytes+1))
	if err != nil {
		return manifest.Manifest{}, err
	}
	return manifest.Parse(b)
}
