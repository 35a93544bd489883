package localhost

import (
	"testing"

	"github.com/lendcli/lend/localhost/route"
	"github.com/stretchr/testify/require"
)

// What the host itself adds to a start: checks, environment, private directory.
func BenchmarkStart(b *testing.B) {
	r := newRig(b, release(b, "github", "1.0.0", "a"))
	_, err := r.Reconcile(b.Context())
	require.NoError(b, err)
	q := route.StartRequest{Identity: r.current()[0].Identity}
	for b.Loop() {
		p, err := r.Start(b.Context(), q)
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
