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

	"github.com/lendcli/lend/protocol/name"
)

// Inviter is a Backend that lets its owner pair with another machine.
type Inviter interface {
	// Invite opens an invitation and tells what becomes of it until it is over; it is
	// withdrawn when ctx is done or tell fails.
	Invite(ctx context.Context, want InvitationWanted, tell func(Invitation) error) error
	// Decide tells what the owner has decided about the one that is open.
	Decide(ctx context.Context, d Decision) error
}

// InvitationWanted is a question for an invitation.
type InvitationWanted struct {
	Seconds int `json:"seconds"` // 1 to 600
	// Local keeps loopback and link-local addresses in the link.
	Local bool `json:"local,omitempty"`
}

// Invitation is one at a moment: first with its Link, which is a secret until it is
// used, then with each change without it. Phase is a word of gateway/pairing.
type Invitation struct {
	SchemaVersion int        `json:"schemaVersion"`
	ID            string     `json:"id,omitempty"`
	Link          string     `json:"link,omitempty"`
	Expires       *time.Time `json:"expires,omitempty"`
	Phase         string     `json:"phase"`
	Final         bool       `json:"final,omitempty"`
	Tries         int        `json:"tries,omitempty"`
	Others        int        `json:"others,omitempty"`
	Peer          string     `json:"peer,omitempty"`
	Called        string     `json:"called,omitempty"`
	Digits        string     `json:"digits,omitempty"`
	// Error says why there is none, in the only line then.
	Error string `json:"error,omitempty"`
}

// Decision is what the owner says about an invitation: "approve" or "refuse" when the
// digits are there, and after "approve", "settle" with the name that the policy has for
// the peer by now, or without one if it could not be changed.
type Decision struct {
	ID   string `json:"id"`
	What string `json:"what"`
	Name string `json:"name,omitempty"`
}

// inviting adds what an Inviter does.
func inviting(mux *http.ServeMux, b Inviter, log zerolog.Logger, closing <-chan struct{}) {
	mux.HandleFunc("POST /v1/invitations", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
		var q InvitationWanted
		if err := body(r, &q); err != nil {
			fail(w, http.StatusBadRequest, err)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			select {
			case <-closing:
				cancel()
			case <-ctx.Done():
			}
		}()
		defer func() {
			cancel()
			<-watched
		}()
		out := http.NewResponseController(w)
		_ = out.SetReadDeadline(time.Time{}) // nothing more is read
		w.Header().Set("Content-Type", "application/x-ndjson")
		tell := func(i Invitation) error {
			i.SchemaVersion = SchemaVersion
			_ = out.SetWriteDeadline(time.Now().Add(requestTimeout))
			if err := json.NewEncoder(w).Encode(i); err != nil {
				return err
			}
			return out.Flush()
		}
		if err := b.Invite(ctx, q, tell); err != nil {
			log.Debug().Err(err).Msg("invitation ended early")
			_ = tell(Invitation{Error: err.Error(), Final: true}) // who does not read it knows
		}
	})
	mux.HandleFunc("POST /v1/invitations/decision", answer(log, func(r *http.Request) (any, error) {
		var d Decision
		if err := body(r, &d); err != nil {
			return nil, err
		}
		return d, b.Decide(r.Context(), d)
	}))
}

var errNoEnd = errors.New("the gateway has ended, and the invitation with it")

// Invite opens an invitation and calls fn with what becomes of it, which ends with a
// final one (nil). The gateway withdraws it when ctx is done or fn fails; ErrNotRunning
// if nobody answers.
func (c *Client) Invite(ctx context.Context, want InvitationWanted, fn func(Invitation) error) error {
	answer, err := c.openWith(ctx, "/v1/invitations", want)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	lines := bufio.NewScanner(answer)
	lines.Buffer(nil, maxRequest)
	for lines.Scan() {
		var i Invitation
		if err := json.Unmarshal(lines.Bytes(), &i); err != nil {
			return fmt.Errorf("read the gateway's answer: %w", err)
		}
		if i.Error != "" {
			return errors.New(name.Show(i.Error))
		}
		if err := fn(i); err != nil || i.Final {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errNoEnd
}

// Decide tells what the owner has decided; ErrNotRunning if nobody answers.
func (c *Client) Decide(ctx context.Context, d Decision) error {
	return c.post(ctx, "/v1/invitations/decision", d, &Decision{})
}
