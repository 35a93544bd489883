package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lendcli/lend/protocol/name"
)

// ErrFailed means that the web gave no answer, or not all of one. Another time it may.
var ErrFailed = errors.New("it did not come")

// failure is what went wrong on the way. Its text is bounded and printable, whatever a
// host made it of.
type failure struct{ err error }

func (f *failure) Error() string {
	return name.Show(strings.ReplaceAll(f.err.Error(), "\n", "; ")) // of several addresses
}

func (f *failure) Unwrap() error { return f.err }

func (f *failure) Is(target error) bool { return target == ErrFailed }

// failed says why err came: the cause of ctx if that is over, or what this package
// refused, or a *failure.
func failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, ErrRefused) {
		return err
	}
	return &failure{err}
}

// watch ends a context when a body gives no byte for some time. It is used by one
// goroutine.
type watch struct {
	ctx    context.Context //nolint:containedctx // it is the lifetime that the watch ends
	cancel context.CancelCauseFunc
	after  time.Duration
	timer  *time.Timer // nil before begin
}

func newWatch(ctx context.Context, after time.Duration) *watch {
	w := &watch{after: after}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	return w
}

func (w *watch) begin() {
	w.timer = time.AfterFunc(w.after, func() { w.cancel(&failure{fmt.Errorf("no byte of it came for %s", w.after)}) })
}

// end must be called.
func (w *watch) end() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.cancel(nil)
}

// watchedBody puts the watch off at each byte.
type watchedBody struct {
	body  io.Reader
	watch *watch
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if n > 0 {
		b.watch.timer.Reset(b.watch.after)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = failed(b.watch.ctx, err)
	}
	return n, err
}
