package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
)

// returned looks at a condition that is the result.
func (f *finder) returned(r *ast.ReturnStmt) {
	if f.result != "denies" && f.result != "passes" || len(r.Results) == 0 {
		return
	}
	f.operands(r.Results[len(r.Results)-1])
}

// operands are those of && and ||: each is taken away by what is neutral there.
func (f *finder) operands(e ast.Expr) {
	b, ok := e.(*ast.BinaryExpr)
	if !ok || b.Op != token.LAND && b.Op != token.LOR {
		return
	}
	for _, side := range []ast.Expr{b.X, b.Y} {
		if inner, ok := side.(*ast.BinaryExpr); ok && inner.Op == b.Op {
			f.operands(side)
			continue
		}
		f.add(side, b.Op == token.LAND)
		f.operands(side)
	}
}

// alternatives are the operands of a condition that refuses if one of them holds, and
// those of what has to hold beside others.
func (f *finder) alternatives(e ast.Expr, pass bool) {
	b, ok := e.(*ast.BinaryExpr)
	if ok && b.Op == token.LOR {
		f.alternatives(b.X, pass)
		f.alternatives(b.Y, pass)
		return
	}
	f.add(e, pass)
	if ok && b.Op == token.LAND {
		f.nested(b.X, pass)
		f.nested(b.Y, pass)
	}
}

func (f *finder) nested(e ast.Expr, pass bool) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		if e.Op == token.LAND {
			f.nested(e.X, pass)
			f.nested(e.Y, pass)
		}
	case *ast.ParenExpr:
		if b, ok := e.X.(*ast.BinaryExpr); ok && b.Op == token.LOR {
			f.alternatives(b, pass)
		}
	}
}

// bounds looks at what keeps a number within limits: each of the two is taken away.
func (f *finder) bounds(body *ast.BlockStmt) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 {
			return true
		}
		if id, ok := call.Fun.(*ast.Ident); !ok || id.Name != "min" && id.Name != "max" {
			return true
		}
		for i, other := range []ast.Expr{call.Args[1], call.Args[0]} {
			f.add(call, false)
			g := f.out[len(f.out)-1]
			g.Key += " without " + f.text(call.Args[i])
			g.free = f.text(other)
		}
		return true
	})
}

// conjuncts are the operands of a condition that passes if all of them hold.
func (f *finder) conjuncts(e ast.Expr) {
	if b, ok := e.(*ast.BinaryExpr); ok && b.Op == token.LAND {
		f.conjuncts(b.X)
		f.conjuncts(b.Y)
		return
	}
	f.add(e, true)
}

var spaces = regexp.MustCompile(`\s+`)

// text is an expression as it is written, on one line.
func (f *finder) text(e ast.Expr) string {
	return spaces.ReplaceAllString(string(f.src[f.fset.Position(e.Pos()).Offset:f.fset.Position(e.End()).Offset]), " ")
}

func (f *finder) add(e ast.Expr, pass bool) {
	start, end := f.fset.Position(e.Pos()), f.fset.Position(e.End())
	text := f.text(e)
	f.out = append(f.out, &guard{
		Key:  fmt.Sprintf("%s.%s: %s", f.part.dir, f.name, text),
		File: f.part.dir + "/" + f.file, Line: start.Line,
		dir: f.part.dir, start: start.Offset, end: end.Offset, pass: pass,
	})
}
