package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"

	"github.com/lendcli/lend/protocol/name"
)

// ErrNotRunning says that no gateway answers on the socket.
var ErrNotRunning = errors.New("no gateway is running here")

const maxAnswer = 16 << 20

// Client asks the gateway behind one socket. It is safe for concurrent use and
// holds nothing open between calls.
type Client struct{ path string }

// NewClient returns a client of the socket at path. It does not connect.
func NewClient(path string) *Client { return &Client{path} }

// Status asks for a snapshot; ErrNotRunning if nobody answers.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.call(ctx, http.MethodGet, "/v1/status", &s)
}

// Reconcile tells the gateway that the installed Connectors have changed, and
// waits until their routes are as installed; ErrNotRunning if nobody answers.
func (c *Client) Reconcile(ctx context.Context) (Reconciled, error) {
	var r Reconciled
	return r, c.call(ctx, http.MethodPost, "/v1/reconcile", &r)
}

func (c *Client) call(ctx context.Context, method, path string, into any) error {
	if len(c.path) > maxPath {
		return ErrNotRunning // none can listen there
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", c.path)
		},
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, "http://gateway"+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("make admin request: %w", err)
	}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			return ErrNotRunning
		}
		return fmt.Errorf("ask the gateway: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("read the gateway's answer: %w", err)
	}
	if len(body) > maxAnswer {
		return errors.New("the gateway's answer is too long")
	}
	if res.StatusCode != http.StatusOK {
		var f failure
		if json.Unmarshal(body, &f) != nil {
			f.Error = "unknown error"
		}
		return fmt.Errorf("the gateway answers: %s", name.Quote(f.Error))
	}
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(into); err != nil {
		return fmt.Errorf("read the gateway's answer: %w", err)
	}
	return nil
}
