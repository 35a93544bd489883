package e2e

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/lendcli/lend"

// arrows says which packages of ours a package may import. A trailing "/*" means
// the packages below. A package that no row names fails the test.
var arrows = []struct {
	pkg string
	may []string
	why string
}{
	{"proto/*", nil, "the generated messages know nothing of ours"},
	{"localhost/failpoint", nil, "where a test kills the process; empty in a build that is shipped"},
	{"protocol/name", nil, "the value types are below everything"},
	{"protocol/argv", []string{"protocol/argv/*", "protocol/name"}, "one grammar below manifest and policy"},
	{"protocol/argv/*", []string{"protocol/argv/*", "protocol/name"}, "parts of the grammar"},
	{"protocol", []string{"proto/*", "protocol/name"}, "bytes in, values out"},
	{"protocol/pair", []string{"proto/*", "protocol/name"}, "bytes in, values out"},
	{"lease/envelope", []string{"protocol/name"}, "the form that both kinds of statement share"},
	{"lease", []string{"lease/envelope", "proto/*", "protocol/name"}, "bytes in, values out"},
	{"lease/*", []string{"lease", "lease/envelope", "proto/*", "protocol/name"}, "bytes in, values out"},
	{"policy", []string{"policy/*", "protocol/name", "protocol/argv"}, "bytes in, values out"},
	{"policy/*", []string{"policy", "policy/*", "protocol/name", "protocol/argv"}, "parts of the policy"},
	{"gateway/ledger", []string{"gateway/ledger/*", "localhost/failpoint", "protocol/name"}, "a file of records; it decides nothing"},
	{"gateway/ledger/*", []string{"gateway/ledger/*", "protocol/name"}, "the form of that file"},
	{"gateway/audit", []string{"gateway/ledger", "gateway/ledger/*", "protocol", "protocol/name"}, "a view of the records"},
	{"gateway/internal/ownersocket", nil, "sockets of one user; it knows nobody's words"},
	{"gateway/admin", []string{"gateway/internal/ownersocket", "protocol", "protocol/*", "lease"}, "the owner's socket shows values only"},
	{"gateway/client", []string{"protocol", "protocol/*", "lease", "gateway/netconf", "gateway/client/*"}, "the caller knows no policy and no runtime"},
	{"gateway/client/broker", []string{"gateway/client", "gateway/client/*", "protocol", "protocol/name", "lease"}, "a caller that others of the same machine use"},
	{"gateway/client/broker/socket", []string{"gateway/client/broker", "gateway/client/broker/*", "gateway/internal/ownersocket", "protocol/name", "lease"}, "the broker's door"},
	{"gateway/client/broker/shims", []string{"gateway/ownerfile", "protocol/name"}, "names that lead to lend-shim"},
	{"gateway/client/broker/native", []string{"gateway/synopsis/schema", "protocol", "protocol/name"}, "command lines; it knows no lease and no link"},
	{"gateway/client/broker/*", nil, "what lend-shim links, and bytes of descriptors"},
	{"gateway/client/pairing", []string{"gateway/client/internal/*", "protocol/name", "protocol/pair"}, "the caller's side of an invitation"},
	{"gateway/client/mcp", []string{"gateway/client", "gateway/client/broker", "gateway/client/broker/*", "gateway/client/mcp/*", "protocol", "protocol/*", "lease"}, "lent commands as tools; it knows no policy and no runtime"},
	{"gateway/client/mcp/*", []string{"gateway/synopsis/schema", "protocol", "protocol/*"}, "forms of commands, standard streams, and HTTP on loopback"},
	{"gateway/synopsis", []string{"gateway/synopsis/schema", "protocol", "protocol/name"}, "a view of the catalogue"},
	{"gateway/synopsis/schema", nil, "bytes in, values out"},
	{"gateway/netconf", nil, "transport settings that both ends share"},
	{"gateway/operation", []string{"gateway/operation/*", "localhost/failpoint", "protocol", "localhost/route"}, "one run; it knows no peer, lease, policy or ledger"},
	{"gateway/operation/*", []string{"protocol"}, "parts of it"},
	{"gateway/revocations", []string{"gateway/ownerfile", "protocol/name", "lease", "lease/revocation"}, "a file of revocations; it decides by them alone"},
	{"gateway/early", []string{"gateway/ledger", "gateway/ownerfile", "protocol/name"}, "a file of keys of operations"},
	{"gateway/issued", []string{"gateway/ownerfile", "protocol/name", "lease"}, "files about leases that were issued here"},
	{"gateway/checkup", []string{"gateway/*", "lease", "policy", "protocol/name", "localhost/checkup"}, "a look from outside; nothing of the peer side imports it"},
	{"gateway/lendtest", []string{"gateway", "gateway/client", "gateway/ledger", "protocol", "protocol/*", "lease", "policy", "localhost/route"}, "a whole gateway in memory, for tests; nothing of ours imports it"},
	{"gateway/*", []string{"gateway/ledger", "gateway/netconf", "protocol", "protocol/*", "lease", "policy", "localhost/route"}, "parts of the gateway"},
	{"gateway", []string{"gateway/*", "localhost/failpoint", "protocol", "protocol/*", "lease", "lease/revocation", "policy", "localhost/route"}, "the peer side can name a route, never a path or a secret"},
	{"localhost/internal/*", nil, "helpers of the runtime"},
	{"localhost/manifest", []string{"localhost/internal/*", "protocol/name", "protocol/argv"}, "strict types"},
	{"localhost/route", []string{"localhost/internal/revision", "protocol/name", "protocol/argv"}, "values that the gateway may hold"},
	{"localhost/process", []string{"localhost/route", "localhost/process/*"}, "the only place that starts programs"},
	{"localhost/process/*", []string{"localhost/process/*"}, "what the supervisor binary links"},
	{"localhost/*", []string{"localhost/*", "localhost/failpoint", "protocol/name", "protocol/argv"}, "a Connector runtime does not know that it is shared"},
	{"localhost", []string{"localhost/*", "protocol/name", "protocol/argv"}, "a Connector runtime does not know that it is shared"},
	{"cmd/lend-shim", []string{"localhost/process", "localhost/process/*", "gateway/client/broker/wire"}, "starts in a millisecond"},
	{"cmd/lend", []string{"*"}, "joins everything and decides nothing"},
	{"e2e/*", []string{"*"}, "test programs"},
	{"e2e", []string{"*"}, "tests"},
}

// forbidden says which packages that are not ours may be imported only where.
var forbidden = []struct {
	imported string   // a path or a prefix ending in "/*"
	only     []string // packages of ours; nil means none
	why      string
}{
	{"os/exec", []string{"localhost/process", "e2e", "e2e/*"}, "one place starts programs"},
	{"github.com/spf13/cobra", []string{"cmd/lend"}, "the command line is in cmd"},
	{"github.com/libp2p/go-libp2p", []string{"gateway", "gateway/*", "cmd/lend", "e2e/bench"}, "hosts are made by the gateway and its client"},
	{"github.com/libp2p/go-libp2p/p2p/*", []string{"gateway", "gateway/*", "e2e/bench"}, "hosts are made by the gateway and its client"},
	{"github.com/lendcli/lend/proto/*", []string{"protocol", "protocol/pair", "lease", "lease/*"}, "wire types stay behind their package"},
	{"github.com/lendcli/lend/gateway/checkup", []string{"cmd/lend"}, "it looks at what both sides keep"},
	{"github.com/modelcontextprotocol/go-sdk/*", []string{"gateway/client/mcp", "gateway/client/mcp/stdio"}, "the library of the agents' protocol is in one place"},
	{"unsafe", []string{"proto/*", "localhost/process", "localhost/process/*", "gateway/ownerfile"}, "system calls only"},
	{"plugin", nil, "nothing is loaded at run time"},
}

// pure lists packages that take bytes and return values, with what they must not
// import.
var pure = struct{ pkgs, not []string }{
	[]string{"protocol", "protocol/name", "protocol/argv", "protocol/pair", "lease", "lease/envelope", "lease/revocation", "policy", "policy/file", "policy/surface", "policy/review", "policy/lint", "policy/preset", "policy/strict", "policy/compare", "policy/replay", "policy/layout", "policy/edit"},
	[]string{"os", "net", "net/*", "os/*", "github.com/rs/zerolog", "log", "log/*", "github.com/libp2p/go-libp2p/core/network", "github.com/libp2p/go-libp2p/core/host"},
}

type pkg struct {
	dir   string // slash path from the top
	files map[string]*ast.File
	fset  *token.FileSet
	tests map[string]*ast.File
}

func repoRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(root, "go.mod"))
	return root
}

func loadPackages(t *testing.T) []*pkg {
	t.Helper()
	root := repoRoot(t)
	byDir := map[string]*pkg{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			n := d.Name()
			if p != root && (strings.HasPrefix(n, ".") || n == "testdata" || n == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		dir := path.Dir(rel)
		if byDir[dir] == nil {
			byDir[dir] = &pkg{dir: dir, files: map[string]*ast.File{}, tests: map[string]*ast.File{}, fset: token.NewFileSet()}
		}
		f, err := parser.ParseFile(byDir[dir].fset, p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		if strings.HasSuffix(rel, "_test.go") {
			byDir[dir].tests[rel] = f
		} else {
			byDir[dir].files[rel] = f
		}
		return nil
	})
	require.NoError(t, err)
	var out []*pkg
	for _, p := range byDir {
		out = append(out, p)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].dir < out[j].dir })
	require.Greater(t, len(out), 5, "the walk found the packages")
	return out
}

func matches(pattern, p string) bool {
	if pattern == "*" || pattern == p {
		return true
	}
	prefix, ok := strings.CutSuffix(pattern, "/*")
	return ok && strings.HasPrefix(p, prefix+"/")
}

func imports(f *ast.File) []string {
	var out []string
	for _, s := range f.Imports {
		p, err := strconv.Unquote(s.Path.Value)
		if err == nil {
			out = append(out, p)
		}
	}
	return out
}

func TestArrows(t *testing.T) {
	t.Parallel()
	for _, p := range loadPackages(t) {
		if len(p.files) == 0 {
			continue
		}
		row := slices.IndexFunc(arrows, func(a struct {
			pkg string
			may []string
			why string
		},
		) bool {
			return matches(a.pkg, p.dir)
		})
		if !checkf(t, row >= 0, "package %s has no row in the table of arrows", p.dir) {
			continue
		}
		for file, f := range p.files {
			for _, imp := range imports(f) {
				ours, ok := strings.CutPrefix(imp, modulePath+"/")
				if !ok {
					continue
				}
				allowed := slices.ContainsFunc(arrows[row].may, func(m string) bool { return matches(m, ours) })
				checkf(t, allowed, "%s imports %s; %s may import only %v: %s", file, ours, arrows[row].pkg, arrows[row].may, arrows[row].why)
			}
		}
	}
}

func TestForbiddenImports(t *testing.T) {
	t.Parallel()
	for _, p := range loadPackages(t) {
		for file, f := range p.files {
			for _, imp := range imports(f) {
				for _, rule := range forbidden {
					ok := !matches(rule.imported, imp) || slices.ContainsFunc(rule.only, func(o string) bool { return matches(o, p.dir) })
					checkf(t, ok, "%s imports %s: %s", file, imp, rule.why)
				}
				if slices.Contains(pure.pkgs, p.dir) {
					for _, n := range pure.not {
						checkf(t, !matches(n, imp), "%s imports %s: the package is pure", file, imp)
					}
				}
			}
		}
	}
}

// TestSpawnsShell looks for a shell as a literal: no code of ours starts one.
func TestSpawnsShell(t *testing.T) {
	t.Parallel()
	for _, p := range loadPackages(t) {
		if !matches("localhost/*", p.dir) && !matches("gateway/*", p.dir) && p.dir != "gateway" && p.dir != "localhost" {
			continue
		}
		for file, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if ok && lit.Kind == token.STRING {
					s, _ := strconv.Unquote(lit.Value)
					checkf(t, s != "/bin/sh" && s != "/bin/bash" && s != "cmd.exe", "%s names a shell", file)
				}
				return true
			})
		}
	}
}

// budgets that have an ADR of their own; the text names it.
var budgetExceptions = map[string]budget{
	"protocol":           {codeLines: 1750, exported: 66, adr: "0010-protocol-budget.md"},
	"protocol/argv":      {files: 16, codeLines: 1900, exported: 32, adr: "0021-argv-budget.md"},
	"gateway":            {files: 16, codeLines: 2345, adr: "0167-a-start-is-readied-while-it-is-recorded.md"},
	"gateway/admin":      {exported: 36, adr: "0151-the-admin-socket-carries-an-invitation.md"},
	"gateway/ledger":     {codeLines: 1800, exported: 27, adr: "0165-events-have-room-on-a-full-disk.md"},
	"gateway/operation":  {codeLines: 1340, adr: "0085-a-panic-ends-one-operation.md"},
	"gateway/client":     {codeLines: 1350, adr: "0072-the-holder-attaches-by-id.md"},
	"lease":              {codeLines: 1600, exported: 26, adr: "0092-lease-budget.md"},
	"policy":             {exported: 30, adr: "0025-policy-packages.md"},
	"policy/edit":        {codeLines: 1370, adr: "0172-a-peer-is-dismissed-in-one-place.md"},
	"localhost/install":  {files: 13, codeLines: 1660, adr: "0111-signatures-travel-beside-the-release.md"},
	"localhost/manifest": {exported: 28, adr: "0110-a-manifest-is-run-whole-or-refused.md"},
	"localhost/route":    {files: 13, exported: 25, adr: "0167-a-start-is-readied-while-it-is-recorded.md"},
	"localhost/process":  {codeLines: 1660, adr: "0054-three-systems-in-one-package.md"},
}

type budget struct {
	files, fileLines, codeLines, exported int
	adr                                   string
}

func budgetOf(dir string) budget {
	b := budget{files: 12, fileLines: 500, codeLines: 1200, exported: 24}
	if dir == "protocol" {
		b.exported = 45
	}
	if e, ok := budgetExceptions[dir]; ok {
		b.files, b.fileLines = max(b.files, e.files), max(b.fileLines, e.fileLines)
		b.codeLines, b.exported = max(b.codeLines, e.codeLines), max(b.exported, e.exported)
	}
	return b
}

func TestBudgets(t *testing.T) {
	t.Parallel()
	root := repoRoot(t)
	var table strings.Builder
	fmt.Fprintf(&table, "%-28s %5s %7s %6s %8s %6s\n", "package", "files", "longest", "code", "exported", "test")
	for _, p := range loadPackages(t) {
		if len(p.files) == 0 || matches("proto/*", p.dir) || p.dir == "cmd/lend" || matches("e2e/*", p.dir) {
			continue
		}
		code, longest, exported, testCode := 0, 0, 0, 0
		for file, f := range p.files {
			lines, total := codeLines(t, filepath.Join(root, file))
			code += lines
			longest = max(longest, total)
			if !strings.HasSuffix(file, "_windows.go") && !strings.HasSuffix(file, "_darwin.go") && !strings.HasSuffix(file, "_other.go") {
				exported += countExported(f)
			}
		}
		for file := range p.tests {
			lines, _ := codeLines(t, filepath.Join(root, file))
			testCode += lines
		}
		b := budgetOf(p.dir)
		fmt.Fprintf(&table, "%-28s %5d %7d %6d %8d %6d\n", p.dir, len(p.files), longest, code, exported, testCode)
		checkf(t, len(p.files) <= b.files, "%s has %d files, budget %d", p.dir, len(p.files), b.files)
		checkf(t, longest <= b.fileLines, "%s has a file of %d lines, budget %d", p.dir, longest, b.fileLines)
		checkf(t, code <= b.codeLines, "%s has %d code lines, budget %d", p.dir, code, b.codeLines)
		checkf(t, exported <= b.exported, "%s exports %d names, budget %d", p.dir, exported, b.exported)
		if slices.Contains([]string{"protocol", "lease", "policy", "gateway"}, p.dir) {
			checkf(t, testCode >= code, "%s has %d lines of tests for %d lines of code", p.dir, testCode, code)
		}
	}
	t.Log("\n" + table.String())
	for dir, e := range budgetExceptions {
		_, err := os.Stat(filepath.Join(root, "docs", "adr", e.adr))
		require.NoError(t, err, "the exception of %s names an ADR", dir)
	}
}

func codeLines(t *testing.T, file string) (code, total int) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		total++
		s := strings.TrimSpace(line)
		if s != "" && !strings.HasPrefix(s, "//") {
			code++
		}
	}
	return code, total
}

func countExported(f *ast.File) int {
	n := 0
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.IsExported() {
				n++
			}
		case *ast.GenDecl:
			n += exportedSpecs(d)
		}
	}
	return n
}

// exportedSpecs counts types and variables one by one, and a block of constants
// (an enumeration or a table of bounds) as one name.
func exportedSpecs(d *ast.GenDecl) int {
	n := 0
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() {
				n++
			}
		case *ast.ValueSpec:
			for _, id := range s.Names {
				if id.IsExported() {
					n++
				}
			}
		}
	}
	if d.Tok == token.CONST && n > 1 {
		return 1
	}
	return n
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	for _, p := range loadPackages(t) {
		if len(p.files) == 0 || matches("proto/*", p.dir) {
			continue
		}
		documented := false
		for _, f := range p.files {
			documented = documented || (f.Doc != nil && len(f.Doc.Text()) > 40)
		}
		checkf(t, documented, "package %s has no package comment", p.dir)
		if p.dir == "cmd/lend" || strings.HasPrefix(p.dir, "cmd/") {
			continue
		}
		for file, f := range p.files {
			for _, undocumented := range undocumentedNames(f) {
				checkf(t, false, "%s: %s has no comment", file, undocumented)
			}
		}
	}
}

func undocumentedNames(f *ast.File) []string {
	var out []string
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
				out = append(out, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if ts, ok := s.(*ast.TypeSpec); ok && ts.Name.IsExported() && d.Doc == nil && ts.Doc == nil {
					out = append(out, ts.Name.Name)
				}
				if vs, ok := s.(*ast.ValueSpec); ok && vs.Names[0].IsExported() && d.Doc == nil && vs.Doc == nil && vs.Comment == nil {
					out = append(out, vs.Names[0].Name)
				}
			}
		}
	}
	return out
}

// exportedReceiver tells whether a method can be reached: methods that fulfil
// well-known interfaces need no comment of their own.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	if slices.Contains([]string{"Error", "String", "Unwrap", "Is", "As", "Len", "Less", "Swap", "MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText", "MarshalZerologObject"}, d.Name.Name) {
		return false
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

// TestGoStatements keeps the number of places that start a goroutine in sight.
func TestGoStatements(t *testing.T) {
	t.Parallel()
	n := 0
	for _, p := range loadPackages(t) {
		for _, f := range p.files {
			ast.Inspect(f, func(node ast.Node) bool {
				if _, ok := node.(*ast.GoStmt); ok {
					n++
				}
				return true
			})
		}
	}
	require.LessOrEqual(t, n, 60, "go statements outside tests")
	t.Logf("%d go statements outside tests", n)
}

func TestTopLevel(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(repoRoot(t))
	require.NoError(t, err)
	want := []string{"cmd", "gateway", "protocol", "lease", "localhost", "policy", "proto", "e2e", "docs", "README.md", "go.mod", "go.sum", "LICENSE"}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			require.Contains(t, want, e.Name(), "the top level holds these and hidden files only")
		}
	}
	mod, err := os.ReadFile(filepath.Join(repoRoot(t), "go.mod"))
	require.NoError(t, err)
	require.NotContains(t, string(mod), "\nreplace ", "no replace in go.mod")
}

// checkf reports a broken rule and goes on, so that one run shows them all.
func checkf(t *testing.T, ok bool, format string, args ...any) bool {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
	return ok
}
