package draft

import (
	"bytes"
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
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

// Options are what an author chooses; "" takes the default.
type Options struct {
	Key     string // the Connector's; default: the package's (scoped: its command's) or file's name
	Version string // the Connector's; default: the package's version, or 0.1.0
	Bin     string // which of the package's commands; default: the one it has
	Native  string // path of an executable in the package, instead of a command
	// Postinstall is the path of the JavaScript file in the package that its
	// installation runs; "" runs none.
	Postinstall string
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
	Bin       string `json:"bin,omitempty"`
	Native    string `json:"native,omitempty"`
	Lock      string `json:"lock"`

	Lifecycle *manifest.Lifecycle `json:"lifecycle,omitempty"`
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
