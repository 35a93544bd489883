package argv_test

import (
	"encoding/json"
	"fmt"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// A manifest declares a command, an owner narrows it, and a caller's spelling
// becomes the one that the child sees.
func Example() {
	var declared argv.Declaration
	err := json.Unmarshal([]byte(`{
	  "arguments": ["issue", "list"], "effect": "read",
	  "parameters": {
	    "repo":  {"flag": "--repo", "aliases": ["-R"], "pattern": "[a-z]+/[a-z]+"},
	    "limit": {"flag": "--limit", "type": "integer", "minimum": 1, "maximum": 100}}}`), &declared)
	if err != nil {
		panic(err)
	}
	command, _ := name.ParseCommand("issue.list")
	repo, _ := name.ParseParameter("repo")
	wide, err := declared.Command(command)
	if err != nil {
		panic(err)
	}
	narrow, err := wide.Narrow(map[name.Parameter]argv.Narrowing{
		repo: {Schema: &argv.Schema{Enum: []string{"acme/site"}}, Required: true},
	})
	if err != nil {
		panic(err)
	}
	grammar, err := narrow.Compile(argv.Contract{Command: "gh"})
	if err != nil {
		panic(err)
	}

	call, err := grammar.Parse([]string{"-R", "acme/site", "--limit", "5"})
	fmt.Printf("%q %v\n", call.Arguments, err)
	call, err = grammar.FromObject([]byte(`{"limit": 5, "repo": "acme/site"}`))
	fmt.Printf("%q %v\n", call.Arguments, err)
	_, err = grammar.Parse([]string{"--limit=5"})
	fmt.Println(err)
	_, err = grammar.Parse([]string{"--repo=acme/site", "--web"})
	fmt.Println(err)
	// Output:
	// ["issue" "list" "--limit=5" "--repo=acme/site"] <nil>
	// ["issue" "list" "--limit=5" "--repo=acme/site"] <nil>
	// refuse parameter repo: missing: want --repo
	// refuse argument 2 "--web": undeclared-flag
}
