package file

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// The tables of the file. The loader checks by them and Schema is made from them.

//nolint:gochecknoglobals // immutable
var fileShape = sync.OnceValue(buildFileShape)

const holdersOf = "holders-of:"

func buildFileShape() *strict.Shape {
	return &strict.Shape{
		Doc: "What an owner allows. Nothing else is allowed, and the order of rules means nothing.",
		Fields: []strict.Field{
			{Key: "policy", Required: true, Shape: &strict.Shape{Int: &strict.Range{Min: 1, Max: 1}, Doc: "the version of this format: 1"}},
			{Key: "issuers", Shape: entries(label(), issuerShape(), "keys whose leases are looked at")},
			{Key: "peers", Shape: entries(label(), text(peerID(), ""), "names for the peers that may connect")},
			{Key: "groups", Shape: entries(label(), list(text(label(), ""), 1, "peers of the group"), "names for several peers")},
			{Key: "workspaces", Shape: entries(label(), workspaceShape(), "directories that commands may work in")},
			{Key: "limits", Shape: gatewayLimitsShape()},
			{Key: "commands", Shape: entries(connectorKey(), entries(commandName(), declarationShape(), ""), "commands of CLIs whose manifest declares none")},
			{Key: "allow", Shape: list(ruleShape(), 0, "the rules; a request passes if one of them lets it")},
			{Key: "tests", Shape: list(testShape(), 0, "what must hold before this file takes effect")},
		},
	}
}

func issuerShape() *strict.Shape {
	return &strict.Shape{Name: "issuer", Fields: []strict.Field{
		{Key: "id", Required: true, Shape: text(peerID(), "the issuer's peer ID")},
		{Key: "connectors", Required: true, Shape: wordOrList("any", connectorKey(), "the Connectors that its leases may grant, or any")},
		{Key: "holders", Shape: wordOrList("any", label(), "peers and groups that its leases may name; any lets it name peers that this file does not know; absent: every peer of this file")},
		{Key: "max_life", Shape: text(duration(), "the longest life of a lease, at most 24h; absent: 1h")},
		{Key: "max_depth", Shape: number(0, MaxDepth, "how often its leases may be passed on, to peers that it may name; absent: 0, never")},
		{Key: "until", Shape: text(day(), "the last day (UTC) on which it is trusted")},
	}}
}

func workspaceShape() *strict.Shape {
	return &strict.Shape{Name: "workspace", Fields: []strict.Field{
		{Key: "path", Required: true, Shape: text(strict.NewText(strict.Text{
			What: "an absolute path without . and .. and without a slash at its end", Max: 1024,
			Pattern: `^/[^/\x00-\x1f]+(/[^/\x00-\x1f]+)*$`, Check: cleanPath,
		}), "where it is on this machine")},
	}}
}

func cleanPath(s string) error {
	for _, part := range strings.Split(s, "/") {
		if part == "." || part == ".." {
			return errors.New("not clean")
		}
	}
	return nil
}

func gatewayLimitsShape() *strict.Shape {
	return &strict.Shape{Name: "limits", Doc: "bounds of the whole gateway; rules may lower those of one operation", Fields: append([]strict.Field{
		{Key: "operations", Shape: number(1, 4096, "operations at the same moment; absent: 128")},
		{Key: "operations_per_peer", Shape: number(1, 4096, "operations of one peer at the same moment; absent: 32, or operations if that is less")},
		{Key: "starts_per_minute", Shape: number(1, 60000, "starts of one peer in a minute; absent: 600")},
		{Key: "denials", Shape: number(1, 10000, "leases that are worth nothing, and breaches of the protocol, by one peer until it is refused for a while; absent: 3")},
	}, operationLimits()...)}
}

func operationLimits() []strict.Field {
	return []strict.Field{
		{Key: "stdin", Shape: text(size(false), "standard input; lowers what the command declares")},
		{Key: "stdout", Shape: text(size(true), "standard output; absent: 64MiB")},
		{Key: "stderr", Shape: text(size(true), "standard error; absent: 16MiB")},
		{Key: "run", Shape: text(duration(), "time; lowers what the command declares")},
		{Key: "on_disconnect", Shape: onDisconnectShape()},
		{Key: "processes", Shape: number(1, 65536, "processes and threads of an operation at the same moment; absent: no bound")},
		{Key: "memory", Shape: text(memory(), "memory of each process, at least 16MiB; of all together where there is a delegated cgroup; absent: no bound")},
		{Key: "arguments", Shape: number(1, argv.MaxArguments, "arguments after rendering, the fixed ones included")},
		{Key: "argument_bytes", Shape: text(size(false), "all arguments together; at most 256KiB")},
	}
}

const onDisconnectKill = "kill"

func onDisconnectShape() *strict.Shape {
	return &strict.Shape{
		Name: "on_disconnect",
		Doc:  "what a lost link does to an operation; absent: {keep: 1m}",
		Text: strict.NewText(strict.Text{What: "kill, or a map such as {keep: 60s}", Words: []string{onDisconnectKill}}),
		Fields: []strict.Field{
			{Key: "keep", Required: true, Shape: text(duration(), "how long the caller may take to come back, at most 1h")},
		},
	}
}

func ruleShape() *strict.Shape {
	return &strict.Shape{Name: "rule", Fields: []strict.Field{
		{Key: "name", Required: true, Shape: text(title(), "unique; of several rules that pass, the least name decides")},
		{Key: "to", Required: true, Shape: list(text(strict.NewText(strict.Text{
			What: "the name of a peer or a group, or " + holdersOf + "ISSUER", Pattern: `^(` + holdersOf + `)?[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`,
		}), ""), 1, "peers, groups, or "+holdersOf+"ISSUER for whoever that issuer names")},
		{Key: "issuers", Shape: list(text(label(), ""), 1, "only under leases of these; absent: of any issuer of this file")},
		{Key: "connector", Required: true, Shape: text(connectorKey(), "the key of the Connector")},
		{Key: "version", Required: true, Shape: &strict.Shape{
			Doc:  "the exact version, or several; in quotes",
			Text: version(), List: &strict.Elements{Item: text(version(), ""), Min: 1, Max: 64, Unique: true},
		}},
		{Key: "connection", Shape: text(strict.NewText(strict.Text{
			What: "a connection ID", Pattern: `^[A-Za-z0-9][A-Za-z0-9._-]{0,190}$`,
		}), "which account of the Connector; absent: the only one")},
		{Key: "workspace", Shape: text(label(), "the workspace that commands run in; absent: a private directory")},
		{Key: "commands", Required: true, Shape: &strict.Shape{
			Doc: "the commands, each with narrower parameters",
			Map: &strict.Entries{Key: commandName(), Min: 1, Value: &strict.Shape{
				Map: &strict.Entries{Key: parameterName(), Value: narrowingShape()},
			}},
		}},
		{Key: "limits", Shape: &strict.Shape{Name: "operation_limits", Fields: operationLimits(), Doc: "lower bounds for operations under this rule"}},
		{Key: "record_arguments", Shape: &strict.Shape{
			Doc:  "commands of the rule whose arguments are written to the gateway's record; absent: none",
			List: &strict.Elements{Item: text(commandName(), ""), Min: 1, Max: 4096, Unique: true},
		}},
	}}
}

func testShape() *strict.Shape {
	return &strict.Shape{Name: "test", Fields: []strict.Field{
		{Key: "name", Required: true, Shape: text(title(), "unique")},
		{Key: "peer", Required: true, Shape: text(strict.NewText(strict.Text{
			What: "the name of a peer, or a peer ID", Pattern: `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`,
		}), "who asks: a peer's name, or a peer ID")},
		{Key: "issuer", Shape: text(label(), "under whose lease; may be absent if there is one issuer")},
		{Key: "version", Shape: text(version(), "may be absent if the rules name one for the Connector")},
		{Key: "run", Required: true, Shape: &strict.Shape{
			Doc:  "the Connector's key, the command, and the arguments as a caller would say them",
			List: &strict.Elements{Item: text(strict.NewText(strict.Text{What: "text", Max: argv.MaxArgument}), ""), Min: 2, Max: argv.MaxArguments + 3},
		}},
		{Key: "pins", Shape: entries(parameterName(), list(text(strict.NewText(strict.Text{What: "text"}), ""), 0, ""), "values that the lease pins parameters to")},
		{Key: "stdin", Shape: &strict.Shape{Bool: true, Doc: "whether the caller has input; absent: false"}},
		{Key: "at", Shape: text(strict.NewText(strict.Text{
			What: `a time such as "2027-06-30T12:00:00Z"`, Pattern: `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$`, Quoted: true,
			Check: func(s string) error { _, err := time.Parse(time.RFC3339, s); return err },
		}), "when; absent: at a time when the issuer is trusted")},
		{Key: "want", Required: true, Shape: text(strict.NewText(strict.Text{What: "allow or deny", Words: []string{"allow", "deny"}}), "")},
		{Key: "rule", Shape: text(title(), "with want: allow, the deciding rule")},
		{Key: "argv", Shape: list(text(strict.NewText(strict.Text{What: "text", Max: argv.MaxArgument}), ""), 0, "with want: allow, the canonical arguments")},
		{Key: "code", Shape: text(strict.NewText(strict.Text{What: "a reason code of a decision", Words: Codes()}), "with want: deny, the reason")},
	}}
}

// declarationShape has the keys of argv.Declaration; a test compares them.
func declarationShape() *strict.Shape {
	return &strict.Shape{Name: "command", Fields: []strict.Field{
		{Key: "summary", Shape: text(prose(), "one line for people and agents")},
		{Key: "effect", Shape: text(strict.NewText(strict.Text{What: "read or write", Words: []string{string(argv.EffectRead), string(argv.EffectWrite)}}), "absent: write")},
		{Key: "arguments", Required: true, Shape: list(text(strict.NewText(strict.Text{What: "text"}), ""), 1, "the fixed arguments that come first")},
		{Key: "timeout", Shape: text(duration(), "the longest run; absent: 2m")},
		{Key: "end_of_options", Shape: &strict.Shape{Bool: true, Doc: "put -- before positional arguments"}},
		{Key: "rest", Shape: &strict.Shape{Name: "rest", Doc: "an open-ended tail of positional arguments", Fields: []strict.Field{
			{Key: "max_items", Required: true, Shape: number(1, 256, "")},
			{Key: "pattern", Required: true, Shape: text(strict.NewText(strict.Text{What: "a regular expression (RE2)", Max: 1024}), "what each item must match, whole")},
		}}},
		{Key: "parameters", Shape: entries(parameterName(), parameterShape(), "what a caller may say")},
	}}
}

func parameterShape() *strict.Shape {
	return &strict.Shape{Name: "parameter", Fields: append([]strict.Field{
		{Key: "description", Shape: text(prose(), "")},
		{Key: "secret", Shape: &strict.Shape{Bool: true, Doc: "never in an argument: standard input or a variable"}},
		{Key: "flag", Shape: text(strict.NewText(strict.Text{What: "an option such as --repo"}), "its place: an option")},
		{Key: "aliases", Shape: list(text(strict.NewText(strict.Text{What: "an option such as -R"}), ""), 1, "other spellings of the option")},
		{Key: "render", Shape: text(strict.NewText(strict.Text{What: "equals or space", Words: []string{string(argv.RenderEquals), string(argv.RenderSpace)}}), "--repo=X or --repo X")},
		{Key: "repeat", Shape: number(1, 256, "the option may be given as often")},
		{Key: "separator", Shape: text(strict.NewText(strict.Text{What: "one character"}), "joins several values in one option")},
		{Key: "position", Shape: number(1, 256, "its place: this position, from 1")},
		{Key: "stdin", Shape: &strict.Shape{Name: "stdin", Doc: "its place: standard input", Fields: []strict.Field{
			{Key: "max_bytes", Shape: number(1, 1<<40, "absent: 1 MiB")},
			{Key: "text", Shape: &strict.Shape{Bool: true, Doc: "UTF-8 only"}},
		}}},
		{Key: "env", Shape: text(strict.NewText(strict.Text{What: "the name of a variable"}), "its place: an environment variable")},
		{Key: "type", Shape: text(strict.NewText(strict.Text{What: "a type", Words: []string{"string", "integer", "number", "boolean"}}), "absent: string")},
		{Key: "min_items", Shape: number(0, 256, "")},
		{Key: "max_items", Shape: number(1, 256, "")},
	}, schemaFields()...)}
}

// narrowingShape: a map of constraints, a list as a short form of enum, or one
// value as a short form of const.
func narrowingShape() *strict.Shape {
	s := scalarShape()
	s.Name, s.Doc = "narrowing", "one value, a list of values, or a map of constraints"
	s.List = &strict.Elements{Item: scalarShape(), Min: 1, Max: 1024, Unique: true}
	s.Fields = append(schemaFields(), strict.Field{Key: "forbidden", Shape: &strict.Shape{Bool: true, Doc: "the parameter may not be given; alone"}})
	return s
}

// schemaFields are the constraints of one value.
func schemaFields() []strict.Field {
	return []strict.Field{
		{Key: "required", Shape: &strict.Shape{Bool: true}},
		{Key: "enum", Shape: &strict.Shape{List: &strict.Elements{Item: scalarShape(), Min: 1, Max: 1024, Unique: true}, Doc: "one of these values"}},
		{Key: "const", Shape: scalarShape()},
		{Key: "pattern", Shape: text(strict.NewText(strict.Text{What: "a regular expression (RE2)", Max: 1024}), "matches the whole value")},
		{Key: "min_length", Shape: number(0, 1<<20, "characters")},
		{Key: "max_length", Shape: number(0, 1<<20, "characters")},
		{Key: "minimum", Shape: &strict.Shape{Number: true}},
		{Key: "maximum", Shape: &strict.Shape{Number: true}},
		{Key: "free_text", Shape: &strict.Shape{Bool: true, Doc: "any text at all, knowingly"}},
		{Key: "kind", Shape: text(strict.NewText(strict.Text{What: "path", Words: []string{string(argv.KindPath)}}), "a path inside the rule's workspace")},
	}
}

func scalarShape() *strict.Shape {
	return &strict.Shape{Text: strict.NewText(strict.Text{What: "text"}), Number: true, Bool: true}
}

func text(t *strict.Text, doc string) *strict.Shape { return &strict.Shape{Text: t, Doc: doc} }

func number(low, high int, doc string) *strict.Shape {
	return &strict.Shape{Int: &strict.Range{Min: low, Max: high}, Doc: doc}
}

func list(item *strict.Shape, least int, doc string) *strict.Shape {
	return &strict.Shape{List: &strict.Elements{Item: item, Min: least, Max: 4096}, Doc: doc}
}

func entries(key *strict.Text, value *strict.Shape, doc string) *strict.Shape {
	return &strict.Shape{Map: &strict.Entries{Key: key, Value: value}, Doc: doc}
}

func wordOrList(word string, item *strict.Text, doc string) *strict.Shape {
	return &strict.Shape{
		Doc:  doc,
		Text: strict.NewText(strict.Text{What: `"` + word + `"`, Words: []string{word}}),
		List: &strict.Elements{Item: text(item, ""), Min: 1, Max: 4096, Unique: true},
	}
}

func label() *strict.Text {
	return strict.NewText(strict.Text{What: "a name of letters, digits, '.', '_' and '-'", Pattern: `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`})
}

func peerID() *strict.Text {
	return strict.NewText(strict.Text{
		What: "an Ed25519 peer ID (12D3KooW…)", Pattern: `^12D3KooW[1-9A-HJ-NP-Za-km-z]{44}$`,
		Check: func(s string) error { _, err := name.ParsePeerID(s); return err },
	})
}

func connectorKey() *strict.Text {
	return strict.NewText(strict.Text{What: "a connector key", Pattern: `^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$`})
}

func version() *strict.Text {
	return strict.NewText(strict.Text{What: `an exact version such as "2.96.0"`, Pattern: `^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`, Quoted: true})
}

func commandName() *strict.Text {
	return strict.NewText(strict.Text{What: "a command's name such as issue.list", Pattern: `^[a-z][a-z0-9._-]{0,127}$`})
}

func parameterName() *strict.Text {
	return strict.NewText(strict.Text{What: "a parameter's name", Pattern: `^[a-z][a-z0-9_-]{0,63}$`})
}

func title() *strict.Text {
	return strict.NewText(strict.Text{What: "a title of 1 to 100 characters", Pattern: `^[^ \x00-\x1f]([^\x00-\x1f]*[^ \x00-\x1f])?$`, Max: 100})
}

func prose() *strict.Text {
	return strict.NewText(strict.Text{What: "one line of text", Pattern: `^[^\x00-\x1f]+$`, Max: 300})
}

func duration() *strict.Text {
	return strict.NewText(strict.Text{
		What: "a time such as 90s, 2m or 1h30m", Pattern: `^([1-9][0-9]{0,3}h([1-9][0-9]?m)?([1-9][0-9]?s)?|[1-9][0-9]{0,4}m([1-9][0-9]?s)?|[1-9][0-9]{0,6}s)$`,
		Check: func(s string) error { _, err := time.ParseDuration(s); return err },
	})
}

func day() *strict.Text {
	return strict.NewText(strict.Text{
		What: `a day such as "2027-06-30"`, Pattern: `^[0-9]{4}-[0-9]{2}-[0-9]{2}$`, Quoted: true,
		Check: func(s string) error { _, err := time.Parse(time.DateOnly, s); return err },
	})
}

func size(unlimited bool) *strict.Text {
	t := strict.Text{What: "a size such as 64KiB or 16MiB", Pattern: `^[1-9][0-9]{0,3}(B|KiB|MiB|GiB)$`}
	if unlimited {
		t.What += ", or the word unlimited"
		t.Pattern = `^([1-9][0-9]{0,3}(B|KiB|MiB|GiB)|unlimited)$`
	}
	return strict.NewText(t)
}

func memory() *strict.Text {
	return strict.NewText(strict.Text{What: "a size such as 512MiB or 2GiB", Pattern: `^[1-9][0-9]{0,3}(MiB|GiB)$`})
}
