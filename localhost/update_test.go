package localhost

import (
	"testing"

	"github.com/lendcli/lend/localhost/intent"
	"github.com/lendcli/lend/localhost/route"
	"github.com/stretchr/testify/require"
)

// TestUpdateLetsWhatRunsEnd: of a release that an update has replaced nothing starts,
// and nothing that runs is ended; it is let go of when the last has ended.
func TestUpdateLetsWhatRunsEnd(t *testing.T) {
	t.Parallel()
	was, now := release(t, "github", "1.0.0", "a"), release(t, "github", "1.1.0", "b")
	r := newRig(t, was)
	r.reconciled(t)
	old := r.only(t)
	p, err := r.Start(t.Context(), route.StartRequest{Identity: old})
	require.NoError(t, err)

	r.store.set(was, now)
	require.Equal(t, []string{"github@1.0.0 default kept", "github@1.1.0 default published"}, states(r.reconciled(t)))
	r.store.update(now, was)
	require.Equal(t, []string{"github@1.0.0 default draining", "github@1.1.0 default kept"}, states(r.reconciled(t)))
	require.Equal(t, "1.1.0", r.only(t).Version.String())
	_, err = r.Start(t.Context(), route.StartRequest{Identity: old})
	require.ErrorIs(t, err, route.ErrIdentityMismatch)

	require.Equal(t, []string{"github@1.1.0 default kept"}, states(r.reconciled(t)))
	require.EqualValues(t, 1, r.transport.live.Load(), "whoever reconciles again")
	require.Zero(t, r.released[was.Digest])
	require.NoError(t, r.transport.last.end())
	e, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.False(t, e.Retired)
	require.NoError(t, p.Close())
	require.Equal(t, 1, r.released[was.Digest])
	require.Empty(t, r.routes.Draining())
}

// TestUpdateBackWhileTheOldOneRuns: the same release is current again, and what the
// earlier route of it runs is not ended either.
func TestUpdateBackWhileTheOldOneRuns(t *testing.T) {
	t.Parallel()
	was, now := release(t, "github", "1.0.0", "a"), release(t, "github", "1.1.0", "b")
	r := newRig(t, was)
	r.reconciled(t)
	p, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
	require.NoError(t, err)
	r.store.update(now, was)
	r.reconciled(t)
	r.store.update(was, now)
	require.Equal(t, []string{"github@1.0.0 default published", "github@1.1.0 default draining"}, states(r.reconciled(t)))
	r.reconciled(t)
	require.EqualValues(t, 1, r.transport.live.Load())
	require.NoError(t, p.Close())
	require.Equal(t, 1, r.released[was.Digest])
}

// TestWhatDrainsIsEndedAllTheSame: by whatever would have ended it without the update.
func TestWhatDrainsIsEndedAllTheSame(t *testing.T) {
	t.Parallel()
	was, now := release(t, "github", "1.0.0", "a"), release(t, "github", "1.1.0", "b")
	for n, end := range map[string]func(t *testing.T, r *rig){
		"removed": func(_ *testing.T, r *rig) { r.store.set() },
		"disabled": func(t *testing.T, r *rig) {
			t.Helper()
			r.want(t, "github", func(i *intent.Intent) { i.Disabled = true })
		},
		"connection-disabled": func(t *testing.T, r *rig) {
			t.Helper()
			all, err := r.root.List(connectorKey(t, "github"))
			require.NoError(t, err)
			require.NoError(t, all[0].SetDisabled(true))
		},
		"version-removed": func(_ *testing.T, r *rig) {
			r.store.mu.Lock()
			defer r.store.mu.Unlock()
			r.store.superseded = nil
		},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, was)
			r.reconciled(t)
			p, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
			require.NoError(t, err)
			r.store.update(now, was)
			r.reconciled(t)
			require.EqualValues(t, 1, r.transport.live.Load())
			end(t, r)
			if n == "removed" {
				r.store.mu.Lock()
				r.store.superseded = nil
				r.store.mu.Unlock()
			}
			require.Contains(t, states(r.reconciled(t)), "github@1.0.0 default retired")
			require.Zero(t, r.transport.live.Load())
			e, err := p.Wait(t.Context())
			require.NoError(t, err)
			require.True(t, e.Retired)
			require.NoError(t, p.Close())
		})
	}
}
