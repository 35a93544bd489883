package skill

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a header, before it is parsed.
const (
	maxHeader = 16 << 10
	maxTokens = 1024
	maxNested = 64
)

// parse reads a SKILL.md. The fields that are not ours are left to others.
func parse(p string, text []byte) (Skill, error) {
	header, body, ok := split(strings.ReplaceAll(string(text), "\r\n", "\n"))
	if !ok {
		return Skill{}, &RefusedError{p, "it does not begin with a header between two lines \"---\""}
	}
	s := Skill{Path: p, text: string(text)}
	fields, reason := headerFields(header)
	if reason != "" {
		return Skill{}, &RefusedError{p, reason}
	}
	s.Name, s.Description = strings.TrimSpace(fields["name"]), strings.TrimSpace(fields["description"])
	s.Title = title(body)
	if s.Title == "" {
		s.Title = s.Name
	}
	for _, f := range []struct {
		what, value string
		most        int
		lines       bool
	}{{"name", s.Name, MaxName, false}, {"title", s.Title, MaxTitle, false}, {"description", s.Description, MaxDescription, true}} {
		switch {
		case f.value == "":
			return Skill{}, &RefusedError{p, "its " + f.what + " is empty"}
		case len(f.value) > f.most:
			return Skill{}, &RefusedError{p, fmt.Sprintf("its %s is longer than %d bytes", f.what, f.most)}
		case strings.ContainsFunc(f.value, func(r rune) bool {
			return unicode.IsControl(r) && (!f.lines || r != '\n' && r != '\t') || unicode.Is(unicode.Cf, r)
		}):
			return Skill{}, &RefusedError{p, "its " + f.what + " holds a control or format character"}
		}
	}
	return s, nil
}

func split(text string) (header, body string, ok bool) {
	rest, ok := strings.CutPrefix(text, "---\n")
	if !ok {
		return "", "", false
	}
	if after, ok := strings.CutPrefix(rest, "---\n"); ok {
		return "", after, true
	}
	if header, ok = strings.CutSuffix(rest, "\n---"); ok && !strings.Contains(header, "\n---\n") {
		return header, "", true
	}
	return strings.Cut(rest, "\n---\n")
}

// title is the first heading of the first level outside of a block of code.
func title(body string) string {
	fenced := false
	for line := range strings.Lines(body) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if t, ok := strings.CutPrefix(line, "# "); ok && !fenced {
			return strings.TrimSpace(t)
		}
	}
	return ""
}

// headerFields reads name and description; reason says why it cannot.
func headerFields(header string) (fields map[string]string, reason string) {
	if len(header) > maxHeader {
		return nil, fmt.Sprintf("its header is larger than %d bytes", maxHeader)
	}
	tokens := lexer.Tokenize(header)
	if len(tokens) > maxTokens {
		return nil, "its header is too large"
	}
	nested := 0
	for _, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType, token.SequenceEntryType:
			if nested++; nested > maxNested {
				return nil, "its header is nested too deep"
			}
		case token.AnchorType, token.AliasType, token.TagType, token.MergeKeyType, token.InvalidType:
			return nil, "its header has anchors, tags, or what is not YAML"
		default:
		}
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil || len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return nil, "its header is not YAML"
	}
	fields = map[string]string{}
	var entries []*ast.MappingValueNode
	switch n := file.Docs[0].Body.(type) {
	case *ast.MappingNode:
		entries = n.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{n}
	default:
		return nil, "its header is not a mapping"
	}
	for _, e := range entries {
		key := e.Key.GetToken().Value
		if key != "name" && key != "description" {
			continue
		}
		if _, twice := fields[key]; twice {
			return nil, "its header has " + key + " twice"
		}
		var value string
		switch v := e.Value.(type) {
		case *ast.StringNode, *ast.LiteralNode:
			if err := yaml.NodeToValue(v, &value); err != nil {
				return nil, "its " + key + " is not text"
			}
		default:
			return nil, "its " + key + " is not text"
		}
		fields[key] = value
	}
	return fields, ""
}
