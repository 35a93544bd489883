package pairing

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/gateway/client/internal/dial"
	"github.com/lendcli/lend/protocol/name"
	"github.com/lendcli/lend/protocol/pair"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func peerOf(b byte) name.PeerID {
	key := make([]byte, 32)
	key[0] = b
	return must(name.PeerIDFromKey(key))
}

// owner plays the other end by hand.
type owner struct {
	t       *testing.T
	c       net.Conn
	parties pair.Parties
	secret  pair.Secret
}

func (o *owner) read() pair.Frame {
	f, err := pair.Read(o.c)
	require.NoError(o.t, err)
	return f
}

func (o *owner) answer() pair.Nonce {
	h, ok := o.read().(pair.Hello)
	require.True(o.t, ok)
	require.True(o.t, h.Proof.Equal(o.parties.CallerProof(o.secret, h.Commitment, h.Called)))
	nonce := pair.Nonce{9}
	require.NoError(o.t, pair.Write(o.c, pair.Answer{Nonce: nonce, Proof: o.parties.OwnerProof(o.secret, h.Commitment, h.Called, nonce)}))
	return nonce
}

// TestWhatTheOwnersEndMaySay: whoever answers with the owner's key, this side takes itself
// for paired only after digits, and says what it knows.
func TestWhatTheOwnersEndMaySay(t *testing.T) {
	t.Parallel()
	laptop := must(name.ParseLabel("laptop"))
	violation := pair.ErrViolation
	lostEarly := errors.New("lost early")
	for title, c := range map[string]struct {
		do    func(o *owner)
		shown bool
		want  error
	}{
		"paired": {func(o *owner) {
			o.answer()
			o.read()
			_ = pair.Write(o.c, pair.Outcome{Result: pair.Paired, Name: laptop})
		}, true, nil},
		"paired, without an answer": {func(o *owner) {
			o.read()
			_ = pair.Write(o.c, pair.Outcome{Result: pair.Paired, Name: laptop})
		}, false, violation},
		"not invited": {func(o *owner) { o.read(); _ = pair.Write(o.c, pair.Outcome{Result: pair.NotInvited}) }, false, ErrNotInvited},
		"used":        {func(o *owner) { o.read(); _ = pair.Write(o.c, pair.Outcome{Result: pair.Used}) }, false, ErrUsed},
		"violation":   {func(o *owner) { o.read(); _ = pair.Write(o.c, pair.Outcome{Result: pair.Violation}) }, false, violation},
		"another secret": {func(o *owner) {
			o.read()
			_ = pair.Write(o.c, pair.Answer{})
		}, false, ErrImpostor},
		"the caller's own proof": {func(o *owner) {
			h := o.read().(pair.Hello)
			_ = pair.Write(o.c, pair.Answer{Proof: h.Proof})
		}, false, ErrImpostor},
		"another frame": {func(o *owner) { o.read(); _ = pair.Write(o.c, pair.Reveal{}) }, false, violation},
		"junk":          {func(o *owner) { o.read(); _, _ = o.c.Write([]byte{0, 0}) }, false, violation},
		"leaves":        {func(o *owner) { o.read() }, false, lostEarly},
		"refused": {func(o *owner) {
			o.answer()
			o.read()
			_ = pair.Write(o.c, pair.Outcome{Result: pair.Refused})
		}, true, ErrRefused},
		"unknown": {func(o *owner) {
			o.answer()
			o.read()
			_ = pair.Write(o.c, pair.Outcome{Result: pair.Unknown})
		}, true, ErrUnknown},
		"leaves with the digits":   {func(o *owner) { o.answer(); o.read() }, true, ErrUnknown},
		"junk with the digits":     {func(o *owner) { o.answer(); o.read(); _, _ = o.c.Write([]byte{0}) }, true, ErrUnknown},
		"a frame with the digits":  {func(o *owner) { o.answer(); o.read(); _ = pair.Write(o.c, pair.Reveal{}) }, true, ErrUnknown},
		"leaves before the reveal": {func(o *owner) { o.answer() }, false, lostEarly},
		"leaves before the hello":  {func(*owner) {}, false, lostEarly},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			mine, theirs := net.Pipe()
			parties, secret := pair.Parties{Owner: peerOf(1), Caller: peerOf(2)}, pair.Secret{7}
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = theirs.Close() }()
				c.do(&owner{t, theirs, parties, secret})
			}()
			shown := ""
			j := joining{parties: parties, config: Config{Link: pair.Link{Owner: parties.Owner, Secret: secret}, Called: laptop, Shown: func(d string) { shown = d }}}
			called, err := j.exchange(mine)
			_ = mine.Close()
			<-done
			require.Equal(t, c.shown, len(shown) == pair.Digits)
			if c.want == nil {
				require.NoError(t, err)
				require.Equal(t, laptop, called)
				return
			}
			require.Error(t, err)
			require.Empty(t, called)
			if !errors.Is(c.want, lostEarly) {
				require.ErrorIs(t, err, c.want)
				return
			}
			require.NotErrorIs(t, err, ErrUnknown, "nobody can have approved")
			require.NotErrorIs(t, err, io.EOF)
		})
	}
}

func TestEveryResultIsSaid(t *testing.T) {
	t.Parallel()
	for r, want := range map[pair.Result]error{
		pair.Refused: ErrRefused, pair.Expired: ErrExpired, pair.NotInvited: ErrNotInvited, pair.Used: ErrUsed, pair.Violation: pair.ErrViolation,
		pair.Withdrawn: ErrWithdrawn, pair.Failed: ErrFailed, pair.Unknown: ErrUnknown, 0: ErrNotInvited,
	} {
		_, err := ended(pair.Outcome{Result: r}, true)
		require.ErrorIs(t, err, want, r)
	}
}

func TestWhyNobodyAnswers(t *testing.T) {
	t.Parallel()
	for _, err := range []error{dial.ErrNotGateway, dial.ErrNotAdmitted, dial.ErrLost, dial.ErrHungUp} {
		require.ErrorIs(t, unopened(t.Context(), err), ErrNotInvited)
	}
	other := errors.New("other")
	require.ErrorIs(t, unopened(t.Context(), other), ErrUnreachable)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(other)
	require.ErrorIs(t, unopened(ctx, dial.ErrLost), other)
	require.Greater(t, decisionTimeout, 10*time.Minute)
}
