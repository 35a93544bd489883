package argv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOnlyNumbersAreCompared: what is none is within no bounds.
func TestOnlyNumbersAreCompared(t *testing.T) {
	t.Parallel()
	least, most := -1.0, 1.0
	for _, s := range []Schema{{Minimum: &least}, {Maximum: &most}} {
		require.Empty(t, s.reject("0", nil))
		require.Equal(t, "want a number", s.reject("zero", nil))
		require.Equal(t, "want a number", s.reject("", nil))
	}
}
