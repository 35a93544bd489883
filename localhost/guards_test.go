package localhost

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/argv"
)

// TestPathStandsWhereTheCallSays: alone or as an item of a list, at its place.
func TestPathStandsWhereTheCallSays(t *testing.T) {
	t.Parallel()
	args := []string{"read", "etc", "--files=a,b/c", "etc,passwd"}
	for title, c := range map[string]struct {
		path argv.Path
		want bool
	}{
		"alone":             {argv.Path{Index: 1, Path: "etc"}, true},
		"first-of-list":     {argv.Path{Index: 2, Offset: 8, Path: "a"}, true},
		"last-of-list":      {argv.Path{Index: 2, Offset: 10, Path: "b/c"}, true},
		"first-item":        {argv.Path{Index: 3, Path: "etc"}, true},
		"a-part":            {argv.Path{Index: 1, Path: "et"}, false},
		"another":           {argv.Path{Index: 1, Path: "usr"}, false},
		"another-at-an-end": {argv.Path{Index: 1, Offset: 3, Path: "usr"}, false},
		"another-at-a-list": {argv.Path{Index: 3, Offset: 3, Path: "usr"}, false},
		"before":            {argv.Path{Index: -1, Path: "etc"}, false},
		"behind":            {argv.Path{Index: 4, Path: "etc"}, false},
		"offset-before":     {argv.Path{Index: 1, Offset: -1, Path: "etc"}, false},
		"offset-behind":     {argv.Path{Index: 1, Offset: 4, Path: ""}, false},
	} {
		require.Equal(t, c.want, stands(args, c.path), title)
	}
}
