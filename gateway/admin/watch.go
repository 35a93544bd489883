package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rs/zerolog"
)

// Bounds of those who watch.
const (
	maxWatchers = 8
	watchEvery  = 250 * time.Millisecond
	watchAlive  = 10 * time.Second // an empty line says that the gateway is there
	maxLine     = 8 << 20
)

// watcher streams the changes of operations: one line of JSON (Operations) for all
// of a moment. The first has what is there, which may be nothing.
type watcher struct {
	backend Backend
	log     zerolog.Logger
	slots   chan struct{}
	closing <-chan struct{}
}

func (h *watcher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		fail(w, http.StatusServiceUnavailable, errors.New("too many watch already"))
		return
	}
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // nothing more is read
	w.Header().Set("Content-Type", "application/x-ndjson")
	if err := h.follow(r.Context(), w, out, r.URL.Query().Get("all") == "true"); err != nil {
		h.log.Debug().Err(err).Msg("watching ended")
	}
}

func (h *watcher) follow(ctx context.Context, w http.ResponseWriter, out *http.ResponseController, ended bool) error {
	var seen changes
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	said, last := time.Time{}, false
	for first := true; ; first = false {
		all, err := h.backend.Operations(ctx, false)
		if err != nil {
			return err
		}
		changed := seen.of(all.Operations)
		if first && !ended {
			changed = runningOnly(changed)
		}
		if first || len(changed) > 0 || time.Since(said) >= watchAlive {
			_ = out.SetWriteDeadline(time.Now().Add(requestTimeout))
			if err := json.NewEncoder(w).Encode(Operations{SchemaVersion: SchemaVersion, Operations: changed}); err != nil {
				return err
			}
			if err := out.Flush(); err != nil {
				return err
			}
			said = time.Now()
		}
		if last {
			return nil
		}
		select {
		case <-tick.C:
		case <-h.closing:
			last = true // but not without what has ended until now
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func runningOnly(ops []Operation) []Operation {
	out := []Operation{}
	for _, o := range ops {
		if o.Running() {
			out = append(out, o)
		}
	}
	return out
}

// Watch calls fn with what has changed, many times a second at most: first with
// what runs (and with all, what has ended lately), which may be nothing. It returns
// when ctx is done, fn fails, or the gateway ends (nil).
func (c *Client) Watch(ctx context.Context, all bool, fn func([]Operation) error) error {
	answer, err := c.open(ctx, http.MethodGet, "/v1/watch/operations"+flag("all", all))
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	lines := bufio.NewScanner(answer)
	lines.Buffer(nil, maxLine)
	for first := true; lines.Scan(); first = false {
		var ops Operations
		if err := json.Unmarshal(lines.Bytes(), &ops); err != nil {
			return fmt.Errorf("read the gateway's answer: %w", err)
		}
		if len(ops.Operations) == 0 && !first {
			continue
		}
		if err := fn(ops.Operations); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("read the gateway's answer: %w", err)
	}
	return ctx.Err()
}
