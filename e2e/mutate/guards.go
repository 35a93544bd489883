package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// guard is one condition, or a part of one, that keeps a request out.
type guard struct {
	// Key names it for as long as the text of the condition stays.
	Key  string
	File string // from the top
	Line int
	ID   int

	dir        string
	start, end int    // of the condition in the file, in bytes
	pass       bool   // taking it away makes the condition true, instead of false
	free       string // of a bound: what is there without it, instead of a condition
	clause     bool   // what is taken away is what a case does, from start on

	candidates []*test // to which it made a difference, fastest first
	// KilledBy is the test that failed without it.
	KilledBy string
	tried    int
}

func (g *guard) survival() string {
	if g.tried == 0 {
		return "no test makes it act"
	}
	return fmt.Sprintf("%d tests make it act, and pass without it", g.tried)
}

// findAll finds the guards of the whole path, in its order.
func findAll(root string) ([]*guard, error) {
	var out []*guard
	for _, p := range path() {
		files, err := filepath.Glob(filepath.Join(root, p.dir, "*.go"))
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", p.dir, err)
		}
		for _, file := range files {
			base := filepath.Base(file)
			if strings.HasSuffix(base, "_test.go") || p.files != nil && !slices.Contains(p.files, base) || foreign(base) {
				continue
			}
			src, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("read source: %w", err)
			}
			found, err := find(p, base, src)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
	}
	count := map[string]int{}
	for i, g := range out {
		g.ID = i + 1
		count[g.Key]++
		if n := count[g.Key]; n > 1 {
			g.Key = fmt.Sprintf("%s #%d", g.Key, n)
		}
	}
	return out, nil
}

// foreign tells whether a file is of another system.
func foreign(base string) bool {
	for _, s := range []string{"_windows.go", "_darwin.go", "_other.go"} {
		if strings.HasSuffix(base, s) {
			return true
		}
	}
	return false
}

// finder finds the guards of one function.
type finder struct {
	part part
	file string
	fset *token.FileSet
	src  []byte
	name string
	// denies: a true, or a value that is not nil, refuses. passes: what refuses is
	// false. says: what refuses is a text that is not empty. All are of the last result.
	result string // "error", "denies", "passes", "reason", "decision", "says" or ""
	out    []*guard
}

func find(p part, base string, src []byte) ([]*guard, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, base, src, 0)
	if err != nil {
		return nil, fmt.Errorf("parse source: %w", err)
	}
	var out []*guard
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || slices.Contains(p.skip, fn.Name.Name) {
			continue
		}
		fd := &finder{part: p, file: base, fset: fset, src: src, name: fn.Name.Name, result: resultOf(p, fn.Name.Name, fn.Type)}
		fd.block(fn.Body)
		if slices.Contains(p.bounds, fn.Name.Name) {
			fd.bounds(fn.Body)
		}
		out = append(out, fd.out...)
	}
	return out, nil
}

// resultOf says how the last result of a function refuses.
func resultOf(p part, name string, t *ast.FuncType) string {
	if t.Results == nil || len(t.Results.List) == 0 {
		return ""
	}
	last := t.Results.List[len(t.Results.List)-1].Type
	switch typ := last.(type) {
	case *ast.Ident:
		switch typ.Name {
		case "error":
			return "error"
		case "bool":
			if slices.Contains(p.denies, name) {
				return "denies"
			}
			return "passes"
		case "Reason":
			return "reason"
		case "Decision":
			return "decision"
		case "Fault":
			return "says"
		case "string":
			if slices.Contains(p.says, name) {
				return "says"
			}
		}
	case *ast.StarExpr:
		switch x := typ.X.(type) { // nil passes
		case *ast.SelectorExpr:
			if x.Sel.Name == "Refusal" || strings.HasSuffix(x.Sel.Name, "Error") {
				return "error"
			}
		case *ast.Ident:
			if strings.HasSuffix(x.Name, "Error") {
				return "error"
			}
		}
	}
	return ""
}

// verdict of a return: it refuses, passes, or cannot be told.
type verdict int

const (
	untold verdict = iota
	refuses
	passes
)

func (f *finder) verdict(r *ast.ReturnStmt) verdict {
	if len(r.Results) == 0 {
		return untold
	}
	last := r.Results[len(r.Results)-1]
	id, isID := last.(*ast.Ident)
	switch f.result {
	case "error":
		if isID && id.Name == "nil" {
			if decidesOutcome(r.Results[0]) {
				return refuses
			}
			return passes
		}
		if call, ok := last.(*ast.CallExpr); ok && !makesError(call) {
			return untold // it may return nil
		}
		return refuses
	case "denies", "passes":
		if isID && (id.Name == "true" || id.Name == "false") {
			if (id.Name == "true") == (f.result == "denies") {
				return refuses
			}
			return passes
		}
	case "reason":
		if isID && id.Name == "ReasonInternal" {
			return passes
		}
		return refuses
	case "says":
		if lit, ok := last.(*ast.BasicLit); ok && lit.Value == `""` {
			return passes
		}
		return refuses
	case "decision":
		if _, ok := last.(*ast.CompositeLit); ok {
			return refuses
		}
		if isID && id.Name == "denied" {
			return refuses
		}
	}
	return untold
}

// makesError tells whether a call makes an error rather than passing one on.
func makesError(c *ast.CallExpr) bool {
	switch calledName(c) {
	case "Errorf", "New", "refuse", "refusalOf", "badField", "invalid", "unavailable", "at", "answer", "Join", "violation", "violationf",
		"asViolation", "unknownFlag":
		return true
	}
	return false
}

// decidesOutcome tells whether a result is an Outcome with a State: of an operation that
// is not the caller's to start.
func decidesOutcome(e ast.Expr) bool {
	lit, ok := e.(*ast.CompositeLit)
	if !ok || len(lit.Elts) == 0 {
		return false
	}
	typ, ok := lit.Type.(*ast.Ident)
	return ok && typ.Name == "Outcome"
}

// calledName is the name of what is called, without package or receiver.
func calledName(c *ast.CallExpr) string {
	switch fun := c.Fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		return fun.Sel.Name
	}
	return ""
}

// block looks at the statements of a body.
func (f *finder) block(b *ast.BlockStmt) {
	f.statements(b.List)
}

func (f *finder) statements(list []ast.Stmt) {
	for i, s := range list {
		switch s := s.(type) {
		case *ast.IfStmt:
			f.ifStmt(s, list[i+1:])
			continue
		case *ast.SwitchStmt:
			f.switchStmt(s.Body, s.Tag == nil, list[i+1:])
		case *ast.TypeSwitchStmt:
			f.switchStmt(s.Body, false, list[i+1:])
		case *ast.ReturnStmt:
			f.returned(s)
		}
		f.inner(s)
	}
}

// inner looks into the blocks of a statement, those of function literals included;
// what a literal returns is not the function's result.
func (f *finder) inner(s ast.Stmt) {
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			sub := *f
			sub.out, sub.result = nil, resultOf(f.part, "", n.Type)
			sub.block(n.Body)
			f.out = append(f.out, sub.out...)
			return false
		case *ast.BlockStmt:
			f.block(n)
			return false
		case *ast.CaseClause:
			f.statements(n.Body)
			return false
		case *ast.CommClause:
			f.statements(n.Body)
			return false
		}
		return true
	})
}

func (f *finder) ifStmt(s *ast.IfStmt, rest []ast.Stmt) {
	switch v := f.ends(s.Body.List); {
	case v == refuses, f.acts(s.Body.List), asksNext(s):
		f.alternatives(s.Cond, false)
	case v == passes && f.leadsToRefusal(rest):
		f.conjuncts(s.Cond)
	}
	f.block(s.Body)
	switch e := s.Else.(type) {
	case *ast.IfStmt:
		f.ifStmt(e, rest)
	case *ast.BlockStmt:
		f.block(e)
	}
}

// switchStmt looks at the cases that refuse, and at those that pass before a refusal:
// of the default, or of what follows. What a default, or the case of a value, refuses
// is taken away as a whole; what follows the switch is done instead.
func (f *finder) switchStmt(body *ast.BlockStmt, conditions bool, rest []ast.Stmt) {
	refused := f.leadsToRefusal(rest)
	for _, c := range body.List {
		if clause := c.(*ast.CaseClause); clause.List == nil {
			refused = f.ends(clause.Body) == refuses
		}
	}
	for _, c := range body.List {
		clause := c.(*ast.CaseClause)
		v := f.ends(clause.Body)
		if !conditions || clause.List == nil {
			if v == refuses && len(rest) > 0 {
				f.addClause(clause)
			}
			continue
		}
		for _, e := range clause.List {
			switch {
			case v == refuses, f.acts(clause.Body):
				f.alternatives(e, false)
			case v == passes && refused && len(clause.List) == 1:
				f.conjuncts(e)
			}
		}
	}
}

func (f *finder) addClause(c *ast.CaseClause) {
	at := f.fset.Position(c.Colon)
	text := "default"
	if len(c.List) > 0 {
		text = "case " + f.text(c.List[0])
	}
	f.out = append(f.out, &guard{
		Key:  fmt.Sprintf("%s.%s: %s", f.part.dir, f.name, text),
		File: f.part.dir + "/" + f.file, Line: at.Line,
		dir: f.part.dir, start: at.Offset + 1, end: at.Offset + 1, clause: true,
	})
}

// ends is the verdict of the last statement.
func (f *finder) ends(list []ast.Stmt) verdict {
	if len(list) == 0 {
		return untold
	}
	switch last := list[len(list)-1].(type) {
	case *ast.ReturnStmt:
		return f.verdict(last)
	case *ast.AssignStmt: // a refusal that is returned later; joined is what only failed as well
		if call, ok := last.Rhs[0].(*ast.CallExpr); ok && makesError(call) && calledName(call) != "Join" {
			return refuses
		}
	case *ast.BranchStmt:
		if last.Tok == token.CONTINUE && slices.Contains([]string{"error", "passes", "reason", "says"}, f.result) {
			return refuses // one candidate of a search is passed over
		}
	}
	return untold
}

// asksNext tells whether an if goes on to the next check while there is no refusal:
// if err == nil { err = check() }.
func asksNext(s *ast.IfStmt) bool {
	none, ok := s.Cond.(*ast.BinaryExpr)
	if !ok || none.Op != token.EQL || len(s.Body.List) == 0 {
		return false
	}
	kept, ok := none.X.(*ast.Ident)
	value, isID := none.Y.(*ast.Ident)
	set, isSet := s.Body.List[len(s.Body.List)-1].(*ast.AssignStmt)
	if !ok || !isID || !isSet || value.Name != "nil" {
		return false
	}
	into, ok := set.Lhs[len(set.Lhs)-1].(*ast.Ident)
	_, isCall := set.Rhs[0].(*ast.CallExpr)
	return ok && isCall && into.Name == kept.Name && slices.Contains([]string{"err", "bad"}, kept.Name)
}

// acts tells whether a body cancels, denies or disconnects.
func (f *finder) acts(list []ast.Stmt) (yes bool) {
	for _, s := range list {
		e, ok := s.(*ast.ExprStmt)
		if !ok {
			continue
		}
		if c, ok := e.X.(*ast.CallExpr); ok {
			if sel, ok := c.Fun.(*ast.SelectorExpr); ok {
				yes = yes || slices.Contains([]string{"Cancel", "Deny", "disconnect", "answerUnread", "reset", "cancel", "rejectLocked"}, sel.Sel.Name)
			}
		}
	}
	return yes
}

// leadsToRefusal tells whether what follows ends in a refusal.
func (f *finder) leadsToRefusal(rest []ast.Stmt) bool {
	return len(rest) == 0 || f.ends(rest) == refuses
}
