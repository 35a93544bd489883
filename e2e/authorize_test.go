package e2e

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hostMethods are what the command line may ask of a runtime itself. None starts a
// command: that is the gateway's, after admission.
var hostMethods = map[string]string{
	"Reconcile":        "publishes and retires routes",
	"ReconcileRelease": "does that of one release",
	"Routes":           "shows them",
	"Receipts":         "shows what was reconciled",
	"Blocked":          "says what keeps a route from being ready",
	"LoginSpec":        "says how the owner logs in, on the owner's terminal",
	"Close":            "ends everything",
}

// TestCommandLineStartsNothingByItself: lend connector try, and all else in cmd/lend,
// has commands run by a gateway only.
func TestCommandLineStartsNothingByItself(t *testing.T) {
	t.Parallel()
	tries := 0
	for _, p := range loadPackages(t) {
		if p.dir != "cmd/lend" {
			continue
		}
		for file, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x := types.ExprString(s.X)
				if x == "host" || strings.HasSuffix(x, ".host") {
					require.Contains(t, hostMethods, s.Sel.Name, "%s asks a runtime for it", file)
				}
				require.NotEqual(t, "StartCLI", s.Sel.Name, "%s starts a CLI", file)
				if s.Sel.Name == "Try" {
					tries++
					require.Equal(t, "try.go", file[strings.LastIndex(file, "/")+1:])
				}
				return true
			})
			for _, imp := range imports(f) {
				require.False(t, slices.Contains([]string{modulePath + "/gateway/operation", modulePath + "/localhost/process/supervise"}, imp), "%s goes around the gateway", file)
			}
		}
	}
	require.Positive(t, tries, "lend connector try goes through the gateway")
}
