package draft

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

// Options are what an author chooses; "" takes the default.
type Options struct {
	Key     string // the Connector's; default: the package's (scoped: its command's) or file's name
	Version string // the Connector's; default: the package's version, or 0.1.0
	Bin     string // which of the package's commands; default: the one it has
}

// Draft is a Connector's directory before it is written.
type Draft struct {
	doc   document
	files map[string][]byte
	copy  map[string]string // path in the directory → absolute path of an executable
}

type document struct {
	SchemaVersion string `json:"schemaVersion"`
	Key           string `json:"key"`
	Version       string `json:"version"`
	DisplayName   string `json:"displayName"`
	CLI           cli    `json:"cli"`
}

type cli struct {
	Command    string         `json:"command"`
	Kind       manifest.Kind  `json:"kind"`
	Entrypoint string         `json:"entrypoint,omitempty"`
	SHA256     string         `json:"sha256,omitempty"`
	Runtime    *interp        `json:"runtime,omitempty"`
	Package    *npmDependency `json:"package,omitempty"`
	Timeout    string         `json:"timeout"`
}

type interp struct {
	Profile string `json:"profile"`
	Range   string `json:"range,omitempty"`
}

type npmDependency struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	Integrity string `json:"integrity"`
	Bin       string `json:"bin"`
	Lock      string `json:"lock"`
}

const timeout = "2m"

func begin(o Options, display, version string) document {
	key := o.Key
	if key == "" {
		key = identifier(display)
	}
	if o.Version != "" {
		version = o.Version
	}
	return document{SchemaVersion: manifest.SchemaVersion, Key: key, Version: version, DisplayName: display}
}

// identifier brings a file's or package's name into the grammar of keys and commands.
func identifier(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(s[strings.LastIndexAny(s, `/\`)+1:]))
	return strings.TrimRight(strings.TrimLeft(s, "-._0123456789"), "-._")
}

// NPM drafts a Connector for the package spec, "NAME@VERSION". tool resolves its
// lock in scratch, an empty private directory; node is the version of tool's
// interpreter.
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
	bin, _, err := npm.ChooseBin(top.Bin, pkg, o.Bin)
	if err != nil {
		return Draft{}, err
	}
	if o.Key == "" && strings.HasPrefix(pkg, "@") {
		o.Key = identifier(bin) // "@scope/cli" says less than what it is called by
	}
	d := Draft{doc: begin(o, pkg, version), files: map[string][]byte{npm.ProjectFile: npm.Project(pkg, version), npm.LockFile: data}}
	d.doc.CLI = cli{
		Command: identifier(bin), Kind: manifest.KindNPM, Timeout: timeout,
		Runtime: &interp{"node", sameMajor(node)},
		Package: &npmDependency{pkg, version, top.Integrity.String(), bin, npm.LockFile},
	}
	return d, nil
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

// Exec drafts a Connector for the executable file, an absolute path: a native one, or
// a script with its interpreter as runtime.
func Exec(file string, o Options) (Draft, error) {
	if !filepath.IsAbs(file) {
		return Draft{}, errors.New("the executable's path must be absolute")
	}
	f, err := os.Open(file)
	if err != nil {
		return Draft{}, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return Draft{}, err
	}
	if most := artifact.ConnectorLimits().FileBytes; !info.Mode().IsRegular() || info.Size() > most || info.Mode()&0o111 == 0 {
		return Draft{}, fmt.Errorf("%s is not an executable file of at most %d bytes", name.Quote(file), most)
	}
	h := sha256.New()
	var head bytes.Buffer
	if _, err := io.Copy(io.MultiWriter(h, &prefix{&head, 256}), f); err != nil {
		return Draft{}, err
	}
	base := filepath.Base(file)
	entry := "bin/" + base
	title := base
	switch ext := filepath.Ext(base); ext {
	case ".exe", ".sh", ".py", ".js", ".mjs", ".cjs", ".rb", ".pl":
		title = strings.TrimSuffix(base, ext)
	}
	d := Draft{doc: begin(o, title, "0.1.0"), copy: map[string]string{entry: file}}
	d.doc.CLI = cli{
		Command: identifier(title), Kind: manifest.KindNative, Entrypoint: entry,
		SHA256: hex.EncodeToString(h.Sum(nil)), Timeout: timeout,
	}
	if profile, script := interpreter(head.String()); script {
		d.doc.CLI.Kind, d.doc.CLI.Runtime = manifest.KindScript, &interp{Profile: profile}
	}
	return d, nil
}

// prefix keeps the first left bytes of what is written.
type prefix struct {
	w    io.Writer
	left int
}

func (p *prefix) Write(b []byte) (int, error) {
	n := min(len(b), p.left)
	p.left -= n
	if _, err := p.w.Write(b[:n]); err != nil {
		return 0, err
	}
	return len(b), nil
}

// interpreter reads a "#!" line: the profile is the interpreter's name.
func interpreter(head string) (profile string, script bool) {
	line, ok := strings.CutPrefix(head, "#!")
	if !ok {
		return "", false
	}
	line, _, _ = strings.Cut(line, "\n")
	fields := strings.Fields(line)
	for i, f := range fields {
		if base := path.Base(f); base != "env" && (i == 0 || !strings.HasPrefix(f, "-")) {
			return identifier(base), true
		}
	}
	return "", true
}

// Write makes the directory dir, which must not exist, and returns its manifest, as
// a Store will read it. After an error nothing is left.
func (d Draft) Write(dir string) (m manifest.Manifest, err error) {
	b, err := json.MarshalIndent(d.doc, "", "  ")
	if err != nil {
		return m, err
	}
	if m, err = manifest.Parse(b); err != nil {
		return m, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // the owner's own files, nothing secret
		return m, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	for n, data := range d.files {
		if err := os.WriteFile(filepath.Join(dir, n), data, 0o644); err != nil { //nolint:gosec // as above
			return m, err
		}
	}
	for n, from := range d.copy {
		if err := copyExecutable(from, filepath.Join(dir, filepath.FromSlash(n))); err != nil {
			return m, err
		}
	}
	return m, os.WriteFile(filepath.Join(dir, manifest.FileName), append(b, '\n'), 0o644) //nolint:gosec // as above
}

func copyExecutable(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // as above
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755) //nolint:gosec // as above
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
