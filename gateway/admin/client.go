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
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/lendcli/lend/gateway/internal/ownersocket"
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

// Checkpoint has one signed and kept, and returns the status after that.
func (c *Client) Checkpoint(ctx context.Context) (Status, error) {
	var s Status
	return s, c.call(ctx, http.MethodPost, "/v1/checkpoint", &s)
}

// Operations lists what runs and what ended lately; with all, what is recorded.
func (c *Client) Operations(ctx context.Context, all bool) (Operations, error) {
	var o Operations
	return o, c.call(ctx, http.MethodGet, "/v1/operations"+flag("all", all), &o)
}

// Operation shows one; ErrNoOperation, or ErrAmbiguous.
func (c *Client) Operation(ctx context.Context, q Which) (OperationShown, error) {
	var o OperationShown
	return o, c.call(ctx, http.MethodGet, q.path("", false), &o)
}

// Cancel stops one operation as its owner, with now at once. The answer has it as it
// was before; ErrNoOperation, or ErrAmbiguous.
func (c *Client) Cancel(ctx context.Context, q Which, now bool) (OperationShown, error) {
	var o OperationShown
	return o, c.call(ctx, http.MethodPost, q.path("/cancel", now), &o)
}

func (q Which) path(action string, now bool) string {
	v := url.Values{}
	for k, s := range map[string]string{"peer": q.Peer, "invocation": q.Invocation} {
		if s != "" {
			v.Set(k, s)
		}
	}
	if now {
		v.Set("now", "true")
	}
	return "/v1/operations/" + url.PathEscape(q.ID) + action + "?" + v.Encode()
}

func flag(key string, set bool) string {
	if !set {
		return ""
	}
	return "?" + key + "=true"
}

// answerBody closes the connection with the body.
type answerBody struct {
	io.ReadCloser
	transport *http.Transport
}

func (b answerBody) Close() error {
	defer b.transport.CloseIdleConnections()
	return b.ReadCloser.Close()
}

// open sends one request and returns the body of its answer.
func (c *Client) open(ctx context.Context, method, path string) (io.ReadCloser, error) {
	return c.send(ctx, method, path, http.NoBody)
}

func (c *Client) send(ctx context.Context, method, path string, body io.Reader) (io.ReadCloser, error) {
	if len(c.path) > ownersocket.MaxPath {
		return nil, ErrNotRunning // none can listen there
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", c.path)
		},
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://gateway"+path, body)
	if err != nil {
		return nil, fmt.Errorf("make admin request: %w", err)
	}
	res, err := (&http.Client{Transport: transport}).Do(req) //nolint:bodyclose // the caller does
	if err != nil {
		transport.CloseIdleConnections()
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			return nil, ErrNotRunning
		}
		return nil, fmt.Errorf("ask the gateway: %w", err)
	}
	answer := answerBody{res.Body, transport}
	if res.StatusCode != http.StatusOK {
		defer func() { _ = answer.Close() }()
		return nil, failed(res)
	}
	return answer, nil
}

// failed is the error that an answer tells of.
func failed(res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxRequest))
	if err != nil {
		return fmt.Errorf("read the gateway's answer: %w", err)
	}
	var f failure
	if json.Unmarshal(body, &f) != nil {
		f.Error = "unknown error"
	}
	for status, known := range map[int]error{http.StatusNotFound: ErrNoOperation, http.StatusConflict: ErrAmbiguous} {
		rest, ok := strings.CutPrefix(f.Error, known.Error()+": ")
		switch {
		case res.StatusCode != status || !ok:
		case strings.ContainsFunc(rest, func(r rune) bool { return r < ' ' || r > '~' }):
			return fmt.Errorf("%w: %s", known, name.Quote(rest))
		default:
			return fmt.Errorf("%w: %s", known, rest)
		}
	}
	return fmt.Errorf("the gateway answers: %s", name.Quote(f.Error))
}

func (c *Client) call(ctx context.Context, method, path string, into any) error {
	answer, err := c.open(ctx, method, path)
	if err != nil {
		return err
	}
	return decode(answer, into)
}

func decode(answer io.ReadCloser, into any) error {
	defer func() { _ = answer.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("read the gateway's answer: %w", err)
	}
	if len(body) > maxAnswer {
		return errors.New("the gateway's answer is too long")
	}
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(into); err != nil {
		return fmt.Errorf("read the gateway's answer: %w", err)
	}
	return nil
}
