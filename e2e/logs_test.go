package e2e

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every line of the log has a constant name and facts under these keys. What a peer
// said gets there only through name.Quote or name.Show, or as a value that was parsed:
// docs/operations.md says what each is.
var logKeys = []string{
	"addresses", "by", "bytes", "cause", "code", "command", "connection", "connector", "digest", "event", "file", "from", "invocation", "ledger",
	"missing", "ms", "now", "op", "peer", "pid", "policy", "problem", "protocol", "records", "runtime", "signal", "state",
	"status", "stderr", "stdin", "stdout", "stopped", "version", "where",
}

// logValues are the texts that are logged as they are, though they are neither constant
// nor parsed nor quoted: why they hold nothing of a peer's.
var logValues = map[string]string{
	"gateway.x.Signal":                       "a name of the table of signals",
	"gateway.n.digestOfPolicy()":             "hexadecimal",
	"gateway.by":                             "\"owner\" or a peer ID",
	"gateway/policyfile.s.Digest":            "hexadecimal",
	"gateway/policyfile.s.Problem":           "quoted when it was made",
	"gateway.e.Name":                         "the name of an event: a constant",
	"gateway/policyfile.p.Digest()":          "hexadecimal",
	"gateway/audit.p.Name":                   "a word of the owner's configuration",
	"gateway/audit.text":                     "quoted when it was made",
	"gateway/client.c.OperationID":           "the caller's own, in the caller's log",
	"gateway/client.c.Connector":             "the caller's own, in the caller's log",
	"gateway/client.c.Name":                  "the caller's own, in the caller's log",
	"localhost/install.rt.Name":              "node or python",
	"localhost/install.rt.Version":           "parsed by the table of runtimes",
	"localhost/install.in.rec.Name":          "a Connector key of a checked manifest",
	"localhost/install.in.rec.Version":       "a version of a checked manifest",
	"localhost/install.in.rec.ReleaseDigest": "hexadecimal",
	"localhost.string(r.State)":              "a constant",
	"gateway.string(s.Protocol())":           "one of the protocols that are handled",
}

// logErrors are the packages that may log an error as it is: of the system, the ledger,
// or an owner's file, never of a peer.
var logErrors = []string{
	"cmd/lend", "gateway", "gateway/admin", "gateway/audit", "gateway/client", "gateway/policyfile", "localhost",
	"localhost/install/depot", "localhost/probe", "localhost/process", "localhost/process/cgroup",
}

func TestLogLines(t *testing.T) {
	t.Parallel()
	fields := []string{"Str", "Strs", "Int", "Int64", "Uint64", "Uint", "Bool", "Dur", "Time"}
	never := []string{"Msgf", "MsgFunc", "Interface", "Any", "RawJSON", "RawCBOR", "Fields", "EmbedObject", "AnErr", "Errs", "Stack", "Hex"}
	lines := 0
	used := map[string]bool{}
	for _, p := range loadPackages(t) {
		if matches("e2e/*", p.dir) || p.dir == "e2e" {
			continue
		}
		for file, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				at := file + ":" + strconv.Itoa(p.fset.Position(call.Pos()).Line)
				switch method := sel.Sel.Name; {
				case method == "Msg" && len(call.Args) == 1:
					lines++
					_, constant := literal(call.Args[0])
					checkf(t, constant, "%s: the name of a log line is not constant", at)
				case slices.Contains(fields, method) && len(call.Args) == 2:
					key, constant := literal(call.Args[0])
					if !constant {
						return true // no log line
					}
					checkf(t, slices.Contains(logKeys, key), "%s: %q is no key of the log", at, key)
					used[key] = true
					if method == "Str" {
						value := p.dir + "." + written(call.Args[1])
						_, reviewed := logValues[value]
						used[value] = true
						checkf(t, reviewed || safe(call.Args[1]), "%s: %s is logged as it is", at, value)
					}
				case method == "Err" && len(call.Args) == 1 && onLogLine(sel.X):
					checkf(t, slices.Contains(logErrors, p.dir), "%s: an error is logged as it is", at)
				case slices.Contains(never, method) && onLogLine(sel.X):
					checkf(t, false, "%s: %s is not for the log", at, method)
				}
				return true
			})
		}
	}
	require.Greater(t, lines, 30)
	doc, err := os.ReadFile(filepath.Join(repoRoot(t), "docs", "operations.md"))
	require.NoError(t, err)
	for _, key := range logKeys {
		checkf(t, strings.Contains(string(doc), "`"+key+"`"), "docs/operations.md does not say what %q is", key)
	}
	for value := range logValues {
		checkf(t, used[value], "the table of values has %s, which is not logged", value)
	}
}

func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(l.Value)
	return s, err == nil
}

// safe tells whether a text is constant, quoted, or a parsed value's.
func safe(e ast.Expr) bool {
	if _, ok := literal(e); ok {
		return true
	}
	c, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if x, ok := sel.X.(*ast.Ident); ok && x.Name == "name" && (sel.Sel.Name == "Quote" || sel.Sel.Name == "Show") {
		return true
	}
	return sel.Sel.Name == "String" && len(c.Args) == 0
}

// onLogLine tells whether an expression is a chain that begins with a level.
func onLogLine(e ast.Expr) bool {
	for {
		c, ok := e.(*ast.CallExpr)
		if !ok {
			id, ok := e.(*ast.Ident)
			return ok && id.Name == "line"
		}
		sel, ok := c.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		if slices.Contains([]string{"Debug", "Info", "Warn", "Error", "WithLevel", "Log"}, sel.Sel.Name) && len(c.Args) <= 1 {
			return true
		}
		e = sel.X
	}
}

// written is an expression as it is written.
func written(e ast.Expr) string {
	var b strings.Builder
	var write func(ast.Expr)
	write = func(e ast.Expr) {
		switch e := e.(type) {
		case *ast.Ident:
			b.WriteString(e.Name)
		case *ast.SelectorExpr:
			write(e.X)
			b.WriteString("." + e.Sel.Name)
		case *ast.CallExpr:
			write(e.Fun)
			b.WriteString("(")
			for _, a := range e.Args {
				write(a)
			}
			b.WriteString(")")
		default:
			b.WriteString("…")
		}
	}
	write(e)
	return b.String()
}

// TestEventsAreCounted: what the gateway records under a name is in the table of the
// metrics.
func TestEventsAreCounted(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join(repoRoot(t), "docs", "metrics.md"))
	require.NoError(t, err)
	found := 0
	for _, p := range loadPackages(t) {
		if !matches("gateway/*", p.dir) && p.dir != "gateway" && p.dir != "cmd/lend" || p.dir == "gateway/ledger" || matches("gateway/ledger/*", p.dir) {
			continue
		}
		for file, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				c, ok := n.(*ast.CompositeLit)
				if !ok || c.Type == nil || written(c.Type) != "ledger.Event" {
					return true
				}
				for _, e := range c.Elts {
					field, ok := e.(*ast.KeyValueExpr)
					if !ok || written(field.Key) != "Name" {
						continue
					}
					if name, constant := literal(field.Value); constant {
						found++
						checkf(t, strings.Contains(string(doc), "`"+name+"`"), "%s records %s, which docs/metrics.md does not name", file, name)
					}
				}
				return true
			})
		}
	}
	require.Greater(t, found, 8)
}
