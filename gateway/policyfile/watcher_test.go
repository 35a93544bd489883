package policyfile

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy"
)

// after lets d pass, and everything that happens in it.
func after(d time.Duration) {
	time.Sleep(d) // of a bubble
	synctest.Wait()
}

// What can happen to a file, by steps, and what the gateway is told of each.
func TestWhatTheGatewayIsTold(t *testing.T) {
	t.Parallel()
	type step struct {
		do   func(*rig)
		want string
	}
	write := func(s string) func(*rig) { return func(r *rig) { r.disk.write(s) } }
	fail := func(err error) func(*rig) { return func(r *rig) { r.disk.set("", err) } }
	partial := good(2)[:len(good(2))/2]
	for label, steps := range map[string][]step{
		"a new policy":         {{write(good(2)), "reload"}, {write(good(3)), "reload"}},
		"the same bytes":       {{write(good(1)), ""}},
		"back":                 {{write(good(2)), "reload"}, {write(good(1)), "reload"}},
		"empty":                {{write(""), "policy.rejected"}, {write(good(2)), "reload"}},
		"partial":              {{write(partial), "policy.rejected"}, {write(good(2)), "reload"}},
		"bad, then as before":  {{write("policy: 2"), "policy.rejected"}, {write(good(1)), "policy.restored"}},
		"bad in another way":   {{write("policy: 2"), "policy.rejected"}, {write("policy: 3"), "policy.rejected"}},
		"a failing test":       {{write(strings.Replace(good(2), "want: allow", "want: deny", 1)), "policy.rejected"}},
		"an error of the lint": {{write(strings.ReplaceAll(good(2), "[fx, print, --size=1]", "[fx, print]") + "limits: {operations: 1x}\n"), "policy.rejected"}},
		"gone":                 {{fail(gone()), "suspend"}, {write(good(1)), "reload"}},
		"gone, then another":   {{fail(gone()), "suspend"}, {write(good(2)), "reload"}},
		"gone, then bad":       {{fail(gone()), "suspend"}, {write(""), "policy.rejected"}, {write(good(1)), "reload"}},
		"gone, bad, gone":      {{fail(gone()), "suspend"}, {write(""), "policy.rejected"}, {fail(gone()), "suspend"}, {write(good(1)), "reload"}},
		"unsafe":               {{fail(errUnsafe), "policy.rejected"}, {write(good(1)), "policy.restored"}},
		"unsafe, then another": {{fail(errUnsafe), "policy.rejected"}, {write(good(2)), "reload"}},
		"bad, then gone":       {{write(""), "policy.rejected"}, {fail(gone()), "suspend"}},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				for _, s := range steps {
					s.do(r)
					after(time.Second)
					require.Equal(t, s.want, r.take())
				}
				after(time.Minute) // and nothing more, whatever is polled
				require.Empty(t, r.take())
			})
		})
	}
}

// What lasts for less than Settle is never heard of: saves of editors.
func TestMomentsDoNotCount(t *testing.T) {
	t.Parallel()
	for label, moments := range map[string][]func(*rig){
		"truncate, then write": {
			func(r *rig) { r.disk.write("") },
			func(r *rig) { r.disk.write(good(2)[:100]) },
			func(r *rig) { r.disk.write(good(2)) },
		},
		"rename away, then write": {
			func(r *rig) { r.disk.set("", gone()) },
			func(r *rig) { r.disk.write("") },
			func(r *rig) { r.disk.write(good(2)) },
		},
		"made safe at the end": {
			func(r *rig) { r.disk.set("", errUnsafe) },
			func(r *rig) { r.disk.write(good(2)) },
		},
		"a valid policy that is cut off": {
			func(r *rig) { r.disk.write(good(3)) },
			func(r *rig) { r.disk.write(good(2)) },
		},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				for _, m := range moments {
					m(r)
					after(DefaultSettle - 50*time.Millisecond)
					require.Empty(t, r.take())
				}
				after(time.Second)
				require.Equal(t, "reload", r.take())
				require.Equal(t, must(policy.Parse(file, []byte(good(2)))).Digest(), r.w.Status().Digest)
			})
		})
	}
}

func TestAMomentThatWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.disk.write("")
		after(100 * time.Millisecond)
		r.disk.write(good(1))
		after(time.Minute)
		require.Empty(t, r.take())
		require.Equal(t, InForce, r.w.Status().State)
	})
}

func TestTakenUpWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		after(70 * time.Millisecond)
		r.disk.write(good(2))
		after(300 * time.Millisecond)
		require.Equal(t, "reload", r.take())
	})
}

// A change that nobody hears of costs seconds.
func TestMissedEventsArePolled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.disk.quietly(good(2), nil)
		after(DefaultPoll + time.Second)
		require.Equal(t, "reload", r.take())
		r.disk.quietly("", gone())
		after(DefaultPoll + time.Second)
		require.Equal(t, "suspend", r.take())
	})
}

func TestAFileThatDoesNotRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 110 {
			r.disk.write(good(i + 2))
			after(100 * time.Millisecond)
		}
		require.Equal(t, "policy.rejected", r.take())
		require.Contains(t, r.w.Status().Problem, "does not come to rest")
		after(time.Second)
		require.Equal(t, "reload", r.take())

		// The last piece comes just before patience ends.
		began := time.Now()
		for i := 0; time.Since(began) < patience-50*time.Millisecond; i++ {
			r.disk.write(good(i + 200))
			after(100 * time.Millisecond)
		}
		after(DefaultPoll + time.Second)
		require.Equal(t, "policy.rejected reload", r.take())
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.w.Check()
		after(time.Second)
		require.Empty(t, r.take(), "what is good and in force is left alone")
		require.Contains(t, r.log.String(), "policy unchanged")

		r.problem = errors.New("no store") // the Connectors have changed, not the file
		after(time.Minute)
		require.Empty(t, r.take())
		r.w.Check()
		after(time.Second)
		require.Equal(t, "policy.rejected", r.take())
		r.w.Check()
		after(time.Second)
		require.Empty(t, r.take(), "the same is told once")

		r.problem = nil
		r.w.Check()
		after(time.Second)
		require.Equal(t, "policy.restored", r.take())
	})
}

func TestStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		began, one := time.Now(), must(policy.Parse(file, []byte(good(1)))).Digest()
		require.Equal(t, Status{Digest: one, Loaded: began, Since: began}, r.w.Status())
		require.Equal(t, "in force", r.w.Status().State.String())
		after(time.Minute)

		r.disk.write("policy: 1\npeers:\n  a\u202eb: x\n  c: y\n")
		after(time.Second)
		s := r.w.Status()
		require.Equal(t, "last good", s.State.String())
		require.Equal(t, one, s.Digest)
		require.Equal(t, began, s.Loaded)
		require.WithinDuration(t, began.Add(time.Minute), s.Since, time.Second)
		require.Contains(t, s.Problem, file+":")
		for _, c := range s.Problem {
			require.True(t, c < 127 && c >= ' ' || c == '…', "%q", s.Problem)
		}
		require.Contains(t, r.log.String(), `"level":"error"`)

		r.disk.set("", gone())
		after(time.Second)
		s = r.w.Status()
		require.Equal(t, "missing", s.State.String())
		require.Equal(t, one, s.Digest)
		require.Equal(t, "there is no "+file, s.Problem)

		r.disk.write(good(2))
		after(time.Second)
		s = r.w.Status()
		require.Equal(t, InForce, s.State)
		require.Empty(t, s.Problem)
		require.NotEqual(t, one, s.Digest)
		require.Equal(t, s.Since, s.Loaded)
		require.Equal(t, "missing", State(99).String(), "what is not known denies")
	})
}

func TestDeafWatchers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.disk.mu.Lock()
		r.disk.deaf = errors.New("too many watches")
		r.disk.mu.Unlock()
		after(time.Minute)
		require.Equal(t, "degraded", r.take())
		r.disk.quietly(good(2), nil)
		after(DefaultPoll + time.Second)
		require.Equal(t, "reload", r.take(), "it is polled")
		r.disk.mu.Lock()
		r.disk.deaf = nil
		r.disk.mu.Unlock()
		after(time.Minute)
		require.Equal(t, "recovered", r.take())
	})
}

func TestPanicsReject(t *testing.T) {
	t.Parallel()
	_, err := judge(file, []byte(good(1)), func() (policy.Contracts, error) { panic("contracts") })
	require.ErrorIs(t, err, errPanic)
}

func TestJudge(t *testing.T) {
	t.Parallel()
	source := func() (policy.Contracts, error) { return contracts{}, nil }
	p, err := judge(file, []byte(good(1)), source)
	require.NoError(t, err)
	require.NotNil(t, p)
	failing := strings.ReplaceAll(good(1), "want: allow", "want: deny") + "  - {name: large, peer: agent, run: [fx, print, --size=9], want: allow}\n"
	p, err = judge(file, []byte(failing), source)
	require.Nil(t, p)
	require.ErrorContains(t, err, `test "small" fails`)
	require.ErrorContains(t, err, "(and 1 more)")
}
