package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// conforms COMMAND [FILE]: FILE (or what the last program printed) is one JSON value or
// more, as docs/schemas/COMMAND.json says.
func cmdConforms(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: conforms COMMAND [FILE]")
	}
	file := "stdout"
	if len(args) == 2 {
		file = args[1]
	}
	dir, err := filepath.Abs("../docs/schemas")
	ts.Check(err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	schema, err := c.Compile(filepath.Join(dir, args[0]+".json"))
	ts.Check(err)
	n := 0
	for d := json.NewDecoder(strings.NewReader(ts.ReadFile(file))); ; n++ {
		var one json.RawMessage
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else {
			ts.Check(err)
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(one)))
		ts.Check(err)
		if err := schema.Validate(v); err != nil {
			ts.Fatalf("%s: %v\n%s", args[0], err, one)
		}
	}
	if n == 0 {
		ts.Fatalf("there is no JSON")
	}
}
