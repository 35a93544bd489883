package mcp

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
)

// Nothing is let in after the end.
func TestNoCallAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := &Server{closed: true}
	ctx := t.Context()
	done, err := s.begin(&ctx, &call{server: s})
	require.ErrorIs(t, err, ErrClosed)
	require.Nil(t, done)
}

// Only what cannot become better ends a lender.
func TestIsOver(t *testing.T) {
	t.Parallel()
	require.True(t, isOver(fmt.Errorf("list: %w", &lease.Error{Reason: lease.ReasonExpired})))
	require.True(t, isOver(errOtherLease))
	for _, err := range []error{nil, errors.New("unreachable"), context.Canceled, &lease.Error{Reason: lease.ReasonSignature}} {
		require.False(t, isOver(err), "%v", err)
	}
}
