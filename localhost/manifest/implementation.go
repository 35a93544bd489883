package manifest

import (
	"encoding/base64"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lendcli/lend/protocol/name"
)

// The systems that an implementation can be for, as runtimes are named as well.
var targetName = regexp.MustCompile(`^(darwin|linux|win)-(arm64|x64)$`)

func (c *checker) targets(all map[string]implementationDocument) map[string]Implementation {
	if len(all) == 0 {
		c.bad("cli.targets", "it is empty: leave it out, or name a system")
	}
	out := make(map[string]Implementation, len(all))
	for _, target := range slices.Sorted(maps.Keys(all)) {
		if !targetName.MatchString(target) {
			c.bad("cli.targets", "want \"linux\", \"darwin\" or \"win\", '-', and \"x64\" or \"arm64\", not %s", name.Quote(target))
			continue
		}
		path := "cli.targets." + target
		i := c.implementation(path, all[target])
		if i.Runtime != nil && i.Runtime.ABI != "" && !strings.HasSuffix(i.Runtime.ABI, "-"+target) {
			c.bad(path+".runtime.abi", "it is of another system")
		}
		out[target] = i
	}
	return out
}

func (c *checker) implementation(at string, d implementationDocument) Implementation {
	out := Implementation{Kind: d.Kind, Entrypoint: d.Entrypoint, SHA256: d.SHA256}
	switch d.Kind {
	case KindNative:
		c.entrypoint(at, d)
		c.absent(at+".runtime", d.Runtime != nil, d.Kind)
		c.absent(at+".package", d.Package != nil, d.Kind)
		out.Archive = c.archive(at, d)
	case KindScript:
		c.entrypoint(at, d)
		c.absent(at+".package", d.Package != nil, d.Kind)
		if d.Runtime == nil {
			c.bad(at+".runtime", "it is missing: a script needs a verified interpreter")
			break
		}
		out.Runtime = c.runtime(at+".runtime", d.Runtime)
	case KindNPM:
		c.absent(at+".entrypoint", d.Entrypoint != "", d.Kind)
		c.sha256(at, d.SHA256)
		out.Runtime = c.runtime(at+".runtime", orNode(d.Runtime))
		if out.Runtime.Profile != "node" {
			c.bad(at+".runtime.profile", "an npm package runs on \"node\"")
		}
		if d.Package == nil {
			c.bad(at+".package", "it is missing")
			break
		}
		if d.SHA256 != "" && d.Package.Native == "" {
			c.bad(at+".sha256", "with kind %q only for a native executable (%s.package.native)", d.Kind, at)
		}
		out.Package = c.pkg(at+".package", d.Package)
	default:
		c.bad(at+".kind", "want %q, %q or %q, not %s", KindNative, KindScript, KindNPM, name.Quote(string(d.Kind)))
	}
	c.absent(at+".archive", d.Archive != nil && d.Kind != KindNative, d.Kind)
	return out
}

func orNode(r *runtimeDocument) *runtimeDocument {
	if r == nil {
		return &runtimeDocument{Profile: "node"}
	}
	return r
}

func (c *checker) absent(path string, present bool, k Kind) {
	if present {
		c.bad(path, "not with kind %q", k)
	}
}

func (c *checker) entrypoint(at string, d implementationDocument) {
	c.err(at+".entrypoint", CheckPath(d.Entrypoint))
	if d.Entrypoint == FileName {
		c.bad(at+".entrypoint", "it is the manifest")
	}
	c.sha256(at, d.SHA256)
}

func (c *checker) sha256(at, s string) {
	if b, err := hex.DecodeString(s); s != "" && (err != nil || len(b) != 32 || strings.ToLower(s) != s) {
		c.bad(at+".sha256", "want 64 lower-case hexadecimal digits")
	}
}

func (c *checker) runtime(at string, d *runtimeDocument) *Runtime {
	r := &Runtime{Profile: d.Profile, ABI: d.ABI}
	if d.ABI != "" && !abiName.MatchString(d.ABI) {
		c.bad(at+".abi", "want language, major version and system, such as \"python3-linux-x64\"")
	}
	c.identifier(at+".profile", d.Profile)
	if d.Range != "" {
		var err error
		r.Range, err = ParseRange(d.Range)
		c.err(at+".range", err)
	}
	return r
}

var (
	packageName = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]{0,126}/)?[a-z0-9][a-z0-9._-]{0,126}$`)
	binName     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,126}$`)
	abiName     = regexp.MustCompile(`^[a-z]{1,32}[0-9]{1,4}-[a-z0-9]{1,16}-[a-z0-9]{1,16}$`)
	variable    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// CheckPackage says whether name and version are an exact npm package: an optional
// @scope/ and a name in lower case, and x.y.z with an optional prerelease.
func CheckPackage(pkg, version string) error {
	if !packageName.MatchString(pkg) || CheckPath(pkg) != nil {
		return &InvalidError{"package", "want a package name such as \"json5\" or \"@scope/name\", not " + name.Quote(pkg)}
	}
	if !ExactVersion(version) {
		return &InvalidError{"version", "want one exact version such as \"2.2.3\", not " + name.Quote(version)}
	}
	return nil
}

func (c *checker) pkg(at string, d *packageDocument) *Package {
	c.err(at, CheckPackage(d.Name, d.Version))
	if b, err := base64.StdEncoding.Strict().DecodeString(strings.TrimPrefix(d.Integrity, "sha512-")); err != nil || len(b) != 64 ||
		!strings.HasPrefix(d.Integrity, "sha512-") {
		c.bad(at+".integrity", "want \"sha512-\" and the base64 of 64 bytes")
	}
	if d.Bin != "" && !binName.MatchString(d.Bin) {
		c.bad(at+".bin", "want the name of one of the package's commands")
	}
	if d.Lock == "" {
		c.bad(at+".lock", "it is missing: a lock pins the whole tree (\"package-lock.json\")")
	} else {
		c.err(at+".lock", CheckPath(d.Lock))
	}
	if d.Native != "" {
		c.err(at+".native", CheckPath(d.Native))
		if d.Bin != "" {
			c.bad(at+".native", "not with a bin: one of them says what runs")
		}
	}
	c.lifecycle(at+".lifecycle", d.Lifecycle)
	return &Package{d.Name, d.Version, d.Integrity, d.Bin, d.Native, d.Lock, d.Lifecycle}
}

func (c *checker) lifecycle(at string, l *Lifecycle) {
	if l == nil {
		return
	}
	if l.Event != "postinstall" {
		c.bad(at+".event", "want \"postinstall\": no other script ever runs")
	}
	c.err(at+".entrypoint", CheckPath(l.Entrypoint))
	c.arguments(at+".arguments", l.Arguments)
}
