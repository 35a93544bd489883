package route

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestIdentityIsWhole: each part of an identity is there and has its form.
func TestIdentityIsWhole(t *testing.T) {
	t.Parallel()
	whole := candidate(t, "fake", "1.0.0", "main", "a").Identity
	require.True(t, whole.complete())
	for title, change := range map[string]func(*Identity){
		"no-connector":     func(id *Identity) { id.Connector = connectorKey(t, "x"); *id = Identity{Version: id.Version} },
		"short-release":    func(id *Identity) { id.ReleaseDigest = id.ReleaseDigest[1:] },
		"upper-release":    func(id *Identity) { id.ReleaseDigest = strings.ToUpper(id.ReleaseDigest) },
		"no-release":       func(id *Identity) { id.ReleaseDigest = "" },
		"hash-of-nothing":  func(id *Identity) { id.ContractHash = contractHashPrefix },
		"short-hash":       func(id *Identity) { id.ContractHash = id.ContractHash[:len(id.ContractHash)-1] },
		"no-hexadecimal":   func(id *Identity) { id.ContractHash = contractHashPrefix + strings.Repeat("g", 64) },
		"another-function": func(id *Identity) { id.ContractHash = "md5:" + strings.Repeat("c", 64) },
	} {
		id := whole
		change(&id)
		require.False(t, id.complete(), title)
	}
}

func TestRoutesAreBounded(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	var last Descriptor
	for i := range MaxRoutes {
		last = commit(t, r, candidate(t, "fake", fmt.Sprintf("1.0.%d", i), "main", "a"), &fakeLauncher{})
	}
	_, err := r.Commit(t.Context(), candidate(t, "fake", "2.0.0", "main", "a"), &fakeLauncher{})
	require.ErrorIs(t, err, ErrUnavailable)
	next := candidate(t, "fake", last.Identity.Version.String(), "main", "b")
	_, err = r.Commit(t.Context(), next, &fakeLauncher{})
	require.NoError(t, err, "one in the place of another is not one more")
	require.NoError(t, r.Close(t.Context()))
}
