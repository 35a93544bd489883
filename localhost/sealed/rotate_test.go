package sealed

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRewrapStoppedAnywhere: every value opens after a stop at each step, with a
// process that starts then, for each pair of sources.
func TestRewrapStoppedAnywhere(t *testing.T) {
	t.Parallel()
	stopped := errors.New("stopped")
	kinds := newFixture(t).sources()
	for i := range kinds {
		for j := range kinds {
			for _, at := range []string{"made", "written", ""} {
				t.Run(fmt.Sprintf("%s-to-%s-at-%s", kinds[i].Kind, kinds[j].Kind, at), func(t *testing.T) {
					t.Parallel()
					f := newFixture(t)
					from, to := f.sources()[i], f.sources()[j]
					s := f.open(t)
					p := place(t, "github", "default", "token")
					require.NoError(t, s.Create(from))
					require.NoError(t, s.Put(p, []byte(canary)))
					bystander := f.open(t)
					requireValue(t, bystander, p, canary)
					s.testOnlyStop = func(step string) error {
						if step == at {
							return stopped
						}
						return nil
					}
					err := s.Rewrap(to)
					if at == "" {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, stopped)
					}
					requireValue(t, f.open(t), p, canary)
					requireValue(t, bystander, p, canary)
					next := f.open(t)
					require.NoError(t, next.Rewrap(to), "again")
					requireValue(t, next, p, canary)
					got, err := next.Source()
					require.NoError(t, err)
					require.Equal(t, to, got)
					if err := next.Rotate(); err != nil || to.Kind != KeyFile {
						require.NoError(t, err)
						require.Empty(t, keyFiles(t, f.dir, keySuffix), "no old key lies around")
						return
					}
					require.Len(t, keyFiles(t, f.dir, keySuffix), 1)
				})
			}
		}
	}
}

// TestRotateStoppedAnywhere: no value is lost at any step, and the next one ends it.
func TestRotateStoppedAnywhere(t *testing.T) {
	t.Parallel()
	const values = 4
	stopped := errors.New("stopped")
	for at := range values + 3 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			s := f.open(t)
			require.NoError(t, s.Create(Source{Kind: Passphrase}))
			check := func(s *Store) {
				for i := range values {
					requireValue(t, s, place(t, "github", "default", fmt.Sprint("t", i)), fmt.Sprint(canary, i))
				}
			}
			for i := range values {
				require.NoError(t, s.Put(place(t, "github", "default", fmt.Sprint("t", i)), fmt.Append(nil, canary, i)))
			}
			d, _, err := s.read()
			require.NoError(t, err)
			first := d.Keys[0].ID
			bystander := f.open(t)
			check(bystander)
			steps := 0
			s.testOnlyStop = func(string) error {
				if steps++; steps > at {
					return stopped
				}
				return nil
			}
			err = s.Rotate()
			if at < values+2 {
				require.ErrorIs(t, err, stopped)
			} else {
				require.NoError(t, err)
			}
			check(f.open(t))
			check(bystander)
			require.NoError(t, os.WriteFile(s.path(place(t, "github", "default", "t0"))+"x", nil, 0o600))
			require.ErrorIs(t, f.open(t).Rotate(), ErrCorrupt, "an unknown file")
			require.NoError(t, os.Remove(s.path(place(t, "github", "default", "t0"))+"x"))
			require.NoError(t, f.open(t).Rotate())
			check(f.open(t))
			check(bystander)
			d, _, err = s.read()
			require.NoError(t, err)
			require.Len(t, d.Keys, 1)
			require.NotEqual(t, first, d.Keys[0].ID)
		})
	}
}

func TestRotateLeavesEverythingIfAValueDoesNotOpen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.open(t)
	require.NoError(t, s.Create(Source{Kind: KeyFile}))
	a, b := place(t, "github", "default", "a"), place(t, "github", "default", "b")
	require.NoError(t, s.Put(a, []byte(canary)))
	require.NoError(t, s.Put(b, []byte("x")))
	require.NoError(t, os.WriteFile(s.path(b), []byte("nonsense"), 0o600))
	before, err := os.ReadFile(s.documentPath())
	require.NoError(t, err)
	require.ErrorIs(t, s.Rotate(), ErrCorrupt)
	after, err := os.ReadFile(s.documentPath())
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	requireValue(t, s, a, canary)
}

// TestReadersDuringRotations: somebody who reads all the time always gets a value
// that was put, and nothing else.
func TestReadersDuringRotations(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s, other := f.open(t), f.open(t)
	p := place(t, "github", "default", "token")
	require.NoError(t, s.Create(Source{Kind: KeyFile}))
	require.NoError(t, s.Put(p, []byte(canary)))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if v, err := other.Get(p); err != nil || string(v) != canary {
					t.Errorf("reader: %v", err)
					return
				}
			}
		})
	}
	for range 10 {
		require.NoError(t, s.Rotate())
		require.NoError(t, s.Put(p, []byte(canary)))
	}
	close(done)
	wg.Wait()
}

func FuzzValue(f *testing.F) {
	f.Add([]byte(valueHeader + "0123456789abcdef0123456789abcdef\nxxxx"))
	f.Add([]byte("lend-secret 1 plain\nx"))
	f.Fuzz(func(t *testing.T, data []byte) {
		id, box, err := keyOf(data)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		require.Equal(t, string(data), valueHeader+id+"\n"+string(box))
	})
}
