package manifest

import (
	"encoding/base64"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

func (c *checker) cli(d *cliDocument) CLI {
	out := CLI{Kind: d.Kind, Entrypoint: d.Entrypoint, SHA256: d.SHA256}
	switch d.Kind {
	case KindNative:
		c.entrypoint(d)
		c.absent("cli.runtime", d.Runtime != nil, d.Kind)
		c.absent("cli.package", d.Package != nil, d.Kind)
	case KindScript:
		c.entrypoint(d)
		c.absent("cli.package", d.Package != nil, d.Kind)
		if d.Runtime == nil {
			c.bad("cli.runtime", "it is missing: a script needs a verified interpreter")
			break
		}
		out.Runtime = c.runtime(d.Runtime)
	case KindNPM:
		c.absent("cli.entrypoint", d.Entrypoint != "", d.Kind)
		c.sha256(d.SHA256)
		out.Runtime = c.runtime(orNode(d.Runtime))
		if out.Runtime.Profile != "node" {
			c.bad("cli.runtime.profile", "an npm package runs on \"node\"")
		}
		if d.Package == nil {
			c.bad("cli.package", "it is missing")
			break
		}
		if d.SHA256 != "" && d.Package.Native == "" {
			c.bad("cli.sha256", "with kind %q only for a native executable (cli.package.native)", d.Kind)
		}
		out.Package = c.pkg(d.Package)
	default:
		c.bad("cli.kind", "want %q, %q or %q, not %s", KindNative, KindScript, KindNPM, name.Quote(string(d.Kind)))
	}
	out.Contract = c.contract(d)
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

func (c *checker) entrypoint(d *cliDocument) {
	c.err("cli.entrypoint", CheckPath(d.Entrypoint))
	if d.Entrypoint == FileName {
		c.bad("cli.entrypoint", "it is the manifest")
	}
	c.sha256(d.SHA256)
}

func (c *checker) sha256(s string) {
	if b, err := hex.DecodeString(s); s != "" && (err != nil || len(b) != 32 || strings.ToLower(s) != s) {
		c.bad("cli.sha256", "want 64 lower-case hexadecimal digits")
	}
}

func (c *checker) runtime(d *runtimeDocument) *Runtime {
	r := &Runtime{Profile: d.Profile, ABI: d.ABI}
	if d.ABI != "" && !abiName.MatchString(d.ABI) {
		c.bad("cli.runtime.abi", "want language, major version and system, such as \"python3-linux-x64\"")
	}
	c.identifier("cli.runtime.profile", d.Profile)
	if d.Range != "" {
		var err error
		r.Range, err = ParseRange(d.Range)
		c.err("cli.runtime.range", err)
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

func (c *checker) pkg(d *packageDocument) *Package {
	c.err("cli.package", CheckPackage(d.Name, d.Version))
	if b, err := base64.StdEncoding.Strict().DecodeString(strings.TrimPrefix(d.Integrity, "sha512-")); err != nil || len(b) != 64 ||
		!strings.HasPrefix(d.Integrity, "sha512-") {
		c.bad("cli.package.integrity", "want \"sha512-\" and the base64 of 64 bytes")
	}
	if d.Bin != "" && !binName.MatchString(d.Bin) {
		c.bad("cli.package.bin", "want the name of one of the package's commands")
	}
	if d.Lock == "" {
		c.bad("cli.package.lock", "it is missing: a lock pins the whole tree (\"package-lock.json\")")
	} else {
		c.err("cli.package.lock", CheckPath(d.Lock))
	}
	if d.Native != "" {
		c.err("cli.package.native", CheckPath(d.Native))
		if d.Bin != "" {
			c.bad("cli.package.native", "not with a bin: one of them says what runs")
		}
	}
	c.lifecycle(d.Lifecycle)
	return &Package{d.Name, d.Version, d.Integrity, d.Bin, d.Native, d.Lock, d.Lifecycle}
}

func (c *checker) lifecycle(l *Lifecycle) {
	if l == nil {
		return
	}
	if l.Event != "postinstall" {
		c.bad("cli.package.lifecycle.event", "want \"postinstall\": no other script ever runs")
	}
	c.err("cli.package.lifecycle.entrypoint", CheckPath(l.Entrypoint))
	c.arguments("cli.package.lifecycle.arguments", l.Arguments)
}

func (c *checker) contract(d *cliDocument) argv.Contract {
	out := argv.Contract{Command: d.Command, Arguments: slices.Clone(d.Arguments), Environment: slices.Clone(d.Environment)}
	c.identifier("cli.command", d.Command)
	c.arguments("cli.arguments", d.Arguments)
	c.environment(d.Environment)
	if d.Timeout != "" {
		t, err := time.ParseDuration(d.Timeout)
		if err != nil || t < minTimeout || t > maxTimeout {
			c.bad("cli.timeout", "want a time from %s to %s, such as \"2m\"", minTimeout, maxTimeout)
		}
		out.Timeout = t
	}
	if len(d.Commands) > maxCommands {
		c.bad("cli.commands", "more than %d", maxCommands)
		return out
	}
	before := len(c.errs)
	for _, n := range slices.Sorted(maps.Keys(d.Commands)) {
		c.command(&out, n, d.Commands[n])
	}
	if len(c.errs) == before {
		c.err("cli", out.Validate())
	}
	return out
}

func (c *checker) command(out *argv.Contract, n string, d argv.Declaration) {
	path := "cli.commands." + n
	parsed, err := name.ParseCommand(n)
	if err != nil {
		c.err("cli.commands", err)
		return
	}
	cmd, err := d.Command(parsed)
	if err != nil {
		c.err(path, err)
		return
	}
	out.Commands = append(out.Commands, cmd)
}

func (c *checker) environment(vars []string) {
	if len(vars) > maxVariables {
		c.bad("cli.environment", "more than %d variables", maxVariables)
	}
	seen := map[string]bool{}
	for _, v := range vars {
		c.variable("cli.environment", v)
		if seen[v] {
			c.bad("cli.environment", "%s is there twice", name.Quote(v))
		}
		if loadsCode(strings.ToUpper(v)) {
			c.bad("cli.environment", "%s lets a caller choose what code runs", name.Quote(v))
		}
		seen[v] = true
	}
}
