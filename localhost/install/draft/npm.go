package draft

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

// NPM drafts a Connector for the package spec, "NAME@VERSION". tool resolves its
// lock in scratch, an empty private directory; node is the version of tool's
// interpreter. For a native executable the package is fetched, to pin its SHA-256.
func NPM(ctx context.Context, tool npm.Tool, node, scratch, spec string, o Options) (Draft, error) {
	pkg, version, err := Package(spec)
	if err != nil {
		return Draft{}, err
	}
	data, err := tool.Resolve(ctx, scratch, pkg, version)
	if err != nil {
		return Draft{}, err
	}
	lock, err := npm.ParseLock(data, pkg, version)
	if err != nil {
		return Draft{}, err
	}
	top, _ := lock.Package("node_modules/" + pkg)
	dep := &npmDependency{Name: pkg, Version: version, Integrity: top.Integrity.String(), Native: o.Native, Lock: npm.LockFile}
	command, sum := strings.TrimSuffix(path.Base(o.Native), ".exe"), ""
	switch {
	case o.Native != "" && o.Bin != "":
		return Draft{}, errors.New("give a bin or a native executable, not both")
	case o.Native != "":
		sum, err = nativeSum(ctx, tool.Registry, scratch, top, o.Native)
	default:
		dep.Bin, _, err = npm.ChooseBin(top.Bin, pkg, o.Bin)
		command = dep.Bin
		if err != nil && len(top.Bin) == 0 {
			err = fmt.Errorf("%w: name the executable in it (--native PATH)", err)
		}
	}
	if err != nil {
		return Draft{}, err
	}
	if o.Postinstall != "" {
		dep.Lifecycle = &manifest.Lifecycle{Event: "postinstall", Entrypoint: o.Postinstall}
	}
	if o.Key == "" && strings.HasPrefix(pkg, "@") {
		o.Key = identifier(command) // "@scope/cli" says less than what it is called by
	}
	d := Draft{doc: begin(o, pkg, version), files: map[string][]byte{npm.ProjectFile: npm.Project(pkg, version), npm.LockFile: data}}
	d.doc.CLI = cli{
		Command: identifier(command), Kind: manifest.KindNPM, SHA256: sum, Timeout: timeout,
		Runtime: &interp{"node", sameMajor(node)}, Package: dep,
	}
	return d, nil
}

// nativeSum fetches a package and returns the SHA-256 of an executable in it.
func nativeSum(ctx context.Context, r npm.Registry, scratch string, pkg npm.Locked, native string) (string, error) {
	if err := manifest.CheckPath(native); err != nil {
		return "", err
	}
	f, err := os.Create(filepath.Join(scratch, "package.tgz"))
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	if err := npm.Fetch(ctx, r, pkg.Name, pkg.Version, pkg.Integrity, f, nil); err != nil {
		return "", err
	}
	root := filepath.Join(scratch, "unpacked")
	dst := filepath.Join(root, filepath.FromSlash(pkg.Path))
	if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
		return "", err
	}
	if err := artifact.Import(ctx, f.Name(), dst, artifact.Options{Limits: artifact.ConnectorLimits(), Strip: 1}); err != nil {
		return "", err
	}
	if _, err := npm.FindProgram(os.DirFS(root), manifest.Package{Name: pkg.Name, Native: native}); err != nil {
		return "", err
	}
	snap, err := artifact.Open(dst, artifact.ConnectorLimits())
	if err != nil {
		return "", err
	}
	_, sum, ok := snap.File(native)
	if !ok {
		return "", errors.New(name.Quote(native) + " is not there")
	}
	return sum, nil
}

// Package splits "NAME@VERSION" and checks both.
func Package(spec string) (pkg, version string, err error) {
	at := strings.LastIndex(spec, "@")
	if at <= 0 {
		return "", "", fmt.Errorf("want one exact version, as in npm:json5@2.2.3, not %s", name.Quote(spec))
	}
	pkg, version = spec[:at], spec[at+1:]
	return pkg, version, manifest.CheckPackage(pkg, version)
}

// sameMajor is the range of the versions that the tried one stands for.
func sameMajor(version string) string {
	major, _, _ := strings.Cut(version, ".")
	var n int
	if _, err := fmt.Sscanf(major, "%d", &n); err != nil {
		return ""
	}
	return fmt.Sprintf(">=%d.0.0 <%d.0.0", n, n+1)
}
