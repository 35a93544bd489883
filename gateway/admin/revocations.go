package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/rs/zerolog"
)

// MaxLeases bounds the leases of one question.
const MaxLeases = 200

// Revoker is a Backend that revokes, and stops everything.
type Revoker interface {
	// Revoke keeps a revocation and ends what runs under it.
	Revoke(ctx context.Context, r Revocation) (Revoked, error)
	// Lockdown begins or ends a lockdown.
	Lockdown(ctx context.Context, want Lockdown) (Lockdown, error)
	// Leases tells of each lease what the gateway knows, in the same order.
	Leases(ctx context.Context, leases []LeaseUse) ([]LeaseUse, error)
}

// Revocation names the leases that match all of what is set. Times have a
// resolution of one millisecond.
type Revocation struct {
	Lease        string     `json:"lease,omitempty"`
	Invocation   string     `json:"invocation,omitempty"`
	Holder       string     `json:"holder,omitempty"`
	Issuer       string     `json:"issuer,omitempty"`
	IssuedBefore *time.Time `json:"issuedBefore,omitempty"`
}

// Revoked says that a Revocation is in force and kept. New is false if it was
// already; Stopped are the operations that it found running. Without a gateway
// (Gateway is false) there are none.
type Revoked struct {
	SchemaVersion int        `json:"schemaVersion"`
	Revoked       Revocation `json:"revoked"`
	New           bool       `json:"new"`
	Stopped       int        `json:"stopped"`
	Gateway       bool       `json:"gateway"`
}

// Lockdown is whether everything is denied. Was is what it was before a change,
// Stopped what the change found running.
type Lockdown struct {
	SchemaVersion int        `json:"schemaVersion"`
	On            bool       `json:"on"`
	Since         *time.Time `json:"since,omitempty"`
	Why           string     `json:"why,omitempty"`
	Was           bool       `json:"was"`
	Stopped       int        `json:"stopped"`
	Gateway       bool       `json:"gateway"`
	// AcceptLoss begins the store of revocations anew if it is not readable, in a
	// request that ends a lockdown.
	AcceptLoss bool `json:"acceptLoss,omitempty"`
	// Lost tells that it was, Restored that it was and is readable again.
	Lost     bool `json:"lost,omitempty"`
	Restored bool `json:"restored,omitempty"`
}

// Revocations says how the store of what was revoked is.
type Revocations struct {
	Entries int `json:"entries"`
	// Failed says why everything is revoked; empty while it is not.
	Failed string `json:"failed,omitempty"`
}

// LeaseUse is one lease, and in an answer, what the gateway knows of it.
type LeaseUse struct {
	Lease  string `json:"lease"`
	Issuer string `json:"issuer"` // of its root
	// Used operations are those that it has started, Running those that have no end.
	Used    int `json:"used"`
	Running int `json:"running"`
}

type leases struct {
	SchemaVersion int        `json:"schemaVersion"`
	Leases        []LeaseUse `json:"leases"`
}

var errTooMany = errors.New("too many leases at once")

// revoking adds what a Revoker does.
func revoking(mux *http.ServeMux, b Revoker, log zerolog.Logger) {
	mux.HandleFunc("POST /v1/revocations", answer(log, func(r *http.Request) (any, error) {
		var q Revocation
		if err := body(r, &q); err != nil {
			return nil, err
		}
		return b.Revoke(r.Context(), q)
	}))
	mux.HandleFunc("POST /v1/lockdown", answer(log, func(r *http.Request) (any, error) {
		var q Lockdown
		if err := body(r, &q); err != nil {
			return nil, err
		}
		return b.Lockdown(r.Context(), q)
	}))
	mux.HandleFunc("POST /v1/leases", answer(log, func(r *http.Request) (any, error) {
		var q leases
		if err := body(r, &q); err != nil {
			return nil, err
		}
		if len(q.Leases) > MaxLeases {
			return nil, errTooMany
		}
		found, err := b.Leases(r.Context(), q.Leases)
		return leases{SchemaVersion, found}, err
	}))
}

// body reads the one JSON value of a request.
func body(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("read the request: more than one value")
	}
	return nil
}

// Revoke revokes as the owner; ErrNotRunning if nobody answers.
func (c *Client) Revoke(ctx context.Context, r Revocation) (out Revoked, err error) {
	return out, c.post(ctx, "/v1/revocations", r, &out)
}

// Lockdown begins or ends a lockdown, as want.On says; ErrNotRunning if nobody
// answers.
func (c *Client) Lockdown(ctx context.Context, want Lockdown) (out Lockdown, err error) {
	return out, c.post(ctx, "/v1/lockdown", want, &out)
}

// Leases asks about leases, as many as there are; ErrNotRunning if nobody answers.
func (c *Client) Leases(ctx context.Context, of []LeaseUse) ([]LeaseUse, error) {
	var all []LeaseUse
	for len(all) < len(of) {
		part := of[len(all):min(len(of), len(all)+MaxLeases)]
		var out leases
		if err := c.post(ctx, "/v1/leases", leases{SchemaVersion, part}, &out); err != nil {
			return nil, err
		}
		if len(out.Leases) != len(part) {
			return nil, errors.New("the gateway's answer is about other leases")
		}
		all = append(all, out.Leases...)
	}
	return all, nil
}

func (c *Client) post(ctx context.Context, path string, q, into any) error {
	res, err := c.openWith(ctx, path, q)
	if err != nil {
		return err
	}
	return decode(res, into)
}

// openWith sends one question as JSON and returns the body of its answer.
func (c *Client) openWith(ctx context.Context, path string, q any) (io.ReadCloser, error) {
	b, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("make admin request: %w", err)
	}
	return c.send(ctx, http.MethodPost, path, bytes.NewReader(b))
}
