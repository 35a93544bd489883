package strict

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/lendcli/lend/protocol/name"
)

// Bounds of a document beyond its size.
const (
	MaxDepth  = 32
	MaxTokens = 200_000
)

// Constraints that a JSON Schema cannot express, as Problem.Rule has them.
const (
	RuleYAML      = "yaml"      // not one plain YAML document
	RuleSize      = "size"      // too large, too deep, too many tokens
	RuleQuoted    = "quoted"    // has to be in quotes
	RuleFormat    = "format"    // the pattern fits, the meaning does not (a date, a peer ID)
	RuleUnique    = "unique"    // there twice
	RuleReference = "reference" // refers to something that is not there
	RuleMeaning   = "meaning"   // the parts do not fit together
)

// Parse reads one document of at most limit bytes. The error is a Problems. What
// is wrong in a single value makes that value Bad; Document.Err has it.
func Parse(file string, data []byte, limit int) (*Document, error) {
	d := &Document{file: file}
	if len(data) > limit {
		d.at(1, 1, RuleSize, fmt.Sprintf("the file has more than %d bytes", limit), "")
		return nil, d.Err()
	}
	d.text = string(data)
	if !d.readable() {
		return nil, d.Err()
	}
	tokens := lexer.Tokenize(d.text)
	if !d.plainTokens(tokens) {
		return nil, d.Err()
	}
	root := d.parse(tokens)
	if root == nil {
		return nil, d.Err()
	}
	d.Root = d.convert(root, 0)
	return d, nil
}

// readable checks the characters: what cannot be seen cannot be reviewed.
func (d *Document) readable() bool {
	line, column := 1, 0
	for i, r := range d.text {
		column++
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(d.text[i:], string(utf8.RuneError)):
			return d.at(line, column, RuleYAML, "the file is not UTF-8 here", "")
		case i == 0 && r == '\ufeff':
			return d.at(line, column, RuleYAML, "the file begins with a byte order mark", "save it as UTF-8 without one")
		case r == '\n':
			line, column = line+1, 0
		case r == '\r' && !strings.HasPrefix(d.text[i:], "\r\n"), r == '\u0085', r == '\u2028', r == '\u2029':
			return d.at(line, column, RuleYAML, fmt.Sprintf("line break %U", r), "end lines with a line feed")
		case r != '\t' && r != '\r' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)):
			return d.at(line, column, RuleYAML, fmt.Sprintf("character %U cannot be seen", r), "remove it")
		}
	}
	return true
}

// plainTokens refuses what makes a document say less or more than it shows, and
// bounds the nesting before the parser, which recurses, sees it.
func (d *Document) plainTokens(tokens token.Tokens) bool {
	if len(tokens) > MaxTokens {
		return d.at(1, 1, RuleSize, fmt.Sprintf("the file has more than %d tokens", MaxTokens), "")
	}
	depth, entries, entryLine, started := 0, 0, 0, false
	for _, t := range tokens {
		line, column := t.Position.Line, t.Position.Column
		refuse := func(what, hint string) bool { return d.at(line, column, RuleYAML, what, hint) }
		switch t.Type {
		case token.AnchorType:
			return refuse("anchors (&) are not allowed here", "write the value where it is used, or in quotes")
		case token.AliasType:
			return refuse("aliases (*) are not allowed here", "write the value where it is used, or in quotes")
		case token.TagType:
			return refuse("tags (!) are not allowed here", "leave the tag out, or write the value in quotes")
		case token.MergeKeyType:
			return refuse("merge keys (<<) are not allowed here", "write the keys where they are used")
		case token.DirectiveType:
			return refuse("directives (%) are not allowed here", "remove the line")
		case token.MappingKeyType:
			return refuse("complex keys (?) are not allowed here", "write KEY: VALUE")
		case token.DocumentEndType:
			return refuse("the end of document mark (...) is not allowed here", "remove the line")
		case token.DocumentHeaderType:
			if started {
				return refuse("a second document begins here", "one file holds one document")
			}
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType:
			if line != entryLine {
				entries, entryLine = 0, line
			}
			entries++
		case token.CommentType:
			continue
		default: // scalars, and what the walk of the tree refuses
		}
		if depth+entries > MaxDepth {
			return d.at(line, column, RuleSize, fmt.Sprintf("nested deeper than %d", MaxDepth), "")
		}
		started = true
	}
	return true
}

// parse runs the YAML parser, which is given no chance to panic.
func (d *Document) parse(tokens token.Tokens) (root ast.Node) {
	defer func() {
		if recover() != nil {
			root = nil
			d.at(1, 1, RuleYAML, "the file cannot be read as YAML", "")
		}
	}()
	f, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(err)
		return nil
	}
	for _, doc := range f.Docs {
		if doc.Body == nil {
			continue
		}
		if root != nil {
			d.at(doc.Body.GetToken().Position.Line, 1, RuleYAML, "a second document begins here", "")
			return nil
		}
		root = doc.Body
	}
	if root == nil {
		d.at(1, 1, "", "the file is empty", "")
	}
	return root
}

func (d *Document) syntax(err error) {
	var se interface {
		GetToken() *token.Token
		GetMessage() string
	}
	line, column, message := 1, 1, "the file cannot be read as YAML"
	if errors.As(err, &se) {
		if t := se.GetToken(); t != nil && t.Position != nil {
			line, column = t.Position.Line, t.Position.Column
		}
		message = safe(se.GetMessage())
	}
	hint := ""
	if lines := strings.SplitN(d.text, "\n", line+1); line <= len(lines) && strings.HasPrefix(strings.TrimLeft(lines[line-1], " "), "\t") {
		hint = "indent with spaces, not with tabs"
	}
	d.at(line, column, RuleYAML, message, hint)
}

// safe bounds a message of the YAML parser, which can quote the file.
func safe(message string) string {
	runes := []rune(strings.ToValidUTF8(message, "?"))
	for i, r := range runes {
		if !unicode.IsPrint(r) {
			runes[i] = '?'
		}
	}
	return string(runes[:min(len(runes), 200)])
}

func (d *Document) convert(n ast.Node, depth int) *Node {
	t := n.GetToken()
	out := &Node{Line: t.Position.Line, Column: t.Position.Column}
	if depth > MaxDepth {
		d.Add(out, RuleSize, fmt.Sprintf("nested deeper than %d", MaxDepth), "")
		return out
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		out.Kind = Map
		d.convertMap(out, n, depth)
	case *ast.SequenceNode:
		out.Kind = List
		for _, v := range n.Values {
			out.Values = append(out.Values, d.convert(v, depth+1))
		}
	case *ast.LiteralNode:
		out.Kind, out.Quoted, out.Text = String, true, n.Value.Value
	case *ast.StringNode:
		if t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType {
			out.Kind, out.Quoted, out.Text = String, true, n.Value
			d.visible(out)
			return out
		}
		d.plain(out, t)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		d.plain(out, t)
	default:
		d.Add(out, RuleYAML, "this is not allowed here", "")
	}
	return out
}

// visible refuses escapes in quotes that make what readable refuses.
func (d *Document) visible(n *Node) {
	for _, r := range n.Text {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError) {
			d.Add(n, RuleYAML, fmt.Sprintf("the text holds the character %U", r), "")
			return
		}
	}
}

func (d *Document) plain(out *Node, t *token.Token) {
	if t.Type == token.ImplicitNullType {
		out.Kind = Null
		return
	}
	text := strings.TrimSpace(t.Origin)
	if strings.ContainsAny(text, "\n") {
		d.Add(out, RuleYAML, "text over several lines is written in quotes", "")
		return
	}
	kind, message, hint := resolve(t.Value)
	if message != "" {
		d.Add(out, RuleQuoted, name.Quote(t.Value)+": "+message, hint)
		return
	}
	out.Kind, out.Text = kind, t.Value
}

func (d *Document) convertMap(out *Node, n *ast.MappingNode, depth int) {
	seen := map[string]*Node{}
	for i, pair := range n.Values {
		key := d.convert(pair.Key, MaxDepth) // a key that nests is refused
		if i == 0 && !n.IsFlowStyle {
			out.Line, out.Column = key.Line, key.Column
		}
		first := seen[key.Text]
		switch {
		case key.Kind == Bad:
		case key.Kind != String:
			d.Add(key, RuleQuoted, "a key is text", "write it in quotes")
		case first != nil:
			d.Add(key, RuleUnique, fmt.Sprintf("duplicate key %s", name.Quote(key.Text)), fmt.Sprintf("it is first at line %d", first.Line))
		default:
			seen[key.Text] = key
		}
		value := d.convert(pair.Value, depth+1)
		if pair.Value.GetToken().Type == token.ImplicitNullType {
			value.Line, value.Column = key.Line, key.Column
		}
		out.Keys, out.Values = append(out.Keys, key), append(out.Values, value)
	}
}
