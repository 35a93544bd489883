package loopback_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/gateway/client/mcp/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

func listen(t *testing.T) *loopback.Endpoint {
	t.Helper()
	e, err := loopback.Listen(t.Context(), "127.0.0.1:0", zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// said says who was asked, and with which headers.
func said(who string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, who+r.Header.Get("Authorization"))
	})
}

func TestOnlyLoopback(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", ":0", "0.0.0.0:0", "[::]:0", "localhost:0", "192.0.2.1:0", "127.0.0.1", "example.org:80", "[::1%lo]:0", "[::ffff:192.0.2.1]:0"} {
		_, err := loopback.Listen(t.Context(), address, zerolog.Nop())
		require.ErrorIs(t, err, loopback.ErrNotLoopback, address)
	}
}

func TestAddressInUse(t *testing.T) {
	t.Parallel()
	e := listen(t)
	_, err := loopback.Listen(t.Context(), strings.TrimPrefix(e.URL(), "http://"), zerolog.Nop())
	require.ErrorIs(t, err, syscall.EADDRINUSE)
}

// ask sends one request as it is written.
func ask(t *testing.T, e *loopback.Endpoint, head string) (status int, body string) {
	t.Helper()
	address := strings.TrimPrefix(e.URL(), "http://")
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, "GET /mcp HTTP/1.1\r\nConnection: close\r\n"+strings.ReplaceAll(head, "ADDRESS", address)+"\r\n")
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

// Who is let in: the bearer of one open scope, said once, to this endpoint by its own
// name, from no page of another origin.
func TestWhoIsLetIn(t *testing.T) {
	t.Parallel()
	e := listen(t)
	one, _, err := e.Open(said("one"), nil)
	require.NoError(t, err)
	two, revoke, err := e.Open(said("two"), nil)
	require.NoError(t, err)
	require.NotEqual(t, one, two)
	require.Len(t, one, 52)
	port := e.URL()[strings.LastIndex(e.URL(), ":"):]
	status := func(head string) int {
		s, body := ask(t, e, head)
		require.NotContains(t, body, one, "the bearer goes no further")
		return s
	}
	require.Equal(t, 200, status("Host: ADDRESS\r\nAuthorization: Bearer "+one+"\r\n"))
	require.Equal(t, 200, status("Host: localhost"+port+"\r\nOrigin: http://ADDRESS\r\nAuthorization: Bearer "+two+"\r\n"))
	for _, scheme := range []string{"bearer", "BEARER", "beareR"} {
		require.Equal(t, 200, status("Host: ADDRESS\r\nAuthorization: "+scheme+" "+one+"\r\n"), "RFC 9110: a scheme has no case")
	}
	for _, head := range []string{
		"Host: evil.example" + port, "Host: 127.0.0.1", "Host: 127.0.0.1:1", "Host: ADDRESS.evil.example", "Host:",
		"Host: ADDRESS\r\nOrigin: http://evil.example", "Host: ADDRESS\r\nOrigin: https://ADDRESS", "Host: ADDRESS\r\nOrigin: ADDRESS", "Host: ADDRESS\r\nOrigin: null", "Host: ADDRESS\r\nOrigin:",
		"Host: ADDRESS\r\nOrigin: http://ADDRESS\r\nOrigin: http://evil.example",
	} {
		require.Equal(t, 403, status(head+"\r\nAuthorization: Bearer "+one+"\r\n"), head)
	}
	for _, head := range []string{
		"", "Authorization: " + one, "Authorization: Basic " + one, "Authorization: Bearer", "Authorization: Bearer=" + one, "Authorization: Bearers " + one, "Authorization: Bearer " + one[1:],
		"Authorization: Bearer " + one + "x", "Authorization: Bearer " + one + "\r\nAuthorization: Bearer " + one, "Authorization: Bearer " + strings.ToLower(one),
		"X-Authorization: Bearer " + one,
	} {
		require.Equal(t, 401, status("Host: ADDRESS\r\n"+strings.TrimSuffix(head+"\r\n", "\r\n")+map[bool]string{true: "\r\n", false: ""}[head != ""]), head)
	}
	_, body := ask(t, e, "Host: ADDRESS\r\nAuthorization: Bearer "+two+"\r\n")
	require.Equal(t, "two", body, "each bearer opens its own scope")
	revoke()
	revoke()
	require.Equal(t, 401, status("Host: ADDRESS\r\nAuthorization: Bearer "+two+"\r\n"))
	require.Equal(t, 200, status("Host: ADDRESS\r\nAuthorization: Bearer "+one+"\r\n"))
}

// The end of a scope, by revoke, by its time or by the endpoint's, ends its requests and
// waits for them.
func TestScopesEnd(t *testing.T) {
	t.Parallel()
	for _, label := range []string{"revoke", "until", "close"} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			e := listen(t)
			begun, ended := make(chan struct{}), make(chan struct{})
			until := make(chan struct{})
			bearer, revoke, err := e.Open(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				close(begun)
				<-r.Context().Done()
				close(ended)
			}), until)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL(), nil)
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer "+bearer)
			over := make(chan struct{})
			go func() {
				defer close(over)
				client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
				if res, err := client.Do(r); err == nil {
					_ = res.Body.Close()
				}
			}()
			<-begun
			switch label {
			case "revoke":
				revoke()
			case "until":
				close(until)
			case "close":
				require.NoError(t, e.Close())
				_, _, err := e.Open(said("x"), nil)
				require.ErrorIs(t, err, loopback.ErrClosed)
			}
			select {
			case <-ended:
			case <-ctx.Done():
				require.Fail(t, "the request goes on")
			}
			<-over
		})
	}
}

// Connections are bounded: the next ones wait, and get in when others have left.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	e := listen(t)
	bearer, _, err := e.Open(said("in"), nil)
	require.NoError(t, err)
	var held []net.Conn
	var d net.Dialer
	for range 64 {
		c, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(e.URL(), "http://"))
		require.NoError(t, err)
		held = append(held, c)
	}
	late, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(e.URL(), "http://"))
	require.NoError(t, err)
	defer func() { _ = late.Close() }()
	_, err = io.WriteString(late, "GET / HTTP/1.1\r\nConnection: close\r\nHost: "+strings.TrimPrefix(e.URL(), "http://")+"\r\nAuthorization: Bearer "+bearer+"\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, late.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = late.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it waits")
	for _, c := range held {
		require.NoError(t, c.Close())
	}
	require.NoError(t, late.SetReadDeadline(time.Now().Add(patience)))
	res, err := http.ReadResponse(bufio.NewReader(late), nil)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, 200, res.StatusCode)
}

// A client that stops in the middle of its request, or of taking the answer, keeps
// neither a revocation nor the end waiting.
func TestStalledClientsKeepNobodyWaiting(t *testing.T) {
	t.Parallel()
	for label, c := range map[string]struct {
		rest    string // of the request's head, with what is there of its body
		handler func(begun chan<- struct{}) http.HandlerFunc
	}{
		"request": {"Content-Length: 100\r\n\r\nhalf of it", func(begun chan<- struct{}) http.HandlerFunc {
			return func(_ http.ResponseWriter, r *http.Request) {
				close(begun)
				_, _ = io.Copy(io.Discard, r.Body)
			}
		}},
		"answer": {"Content-Length: 0\r\n\r\n", func(begun chan<- struct{}) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				close(begun)
				block := make([]byte, 1<<20)
				for range 256 { // more than all buffers between the two hold
					if _, err := w.Write(block); err != nil {
						return
					}
				}
			}
		}},
	} {
		for _, how := range []string{"revoke", "close"} {
			t.Run(label+" "+how, func(t *testing.T) {
				t.Parallel()
				e := listen(t)
				begun := make(chan struct{})
				bearer, revoke, err := e.Open(c.handler(begun), nil)
				require.NoError(t, err)
				address := strings.TrimPrefix(e.URL(), "http://")
				var d net.Dialer
				conn, err := d.DialContext(t.Context(), "tcp", address)
				require.NoError(t, err)
				defer func() { _ = conn.Close() }() // before the endpoint's end is awaited
				_, err = io.WriteString(conn, "POST /mcp HTTP/1.1\r\nHost: "+address+"\r\nAuthorization: Bearer "+bearer+"\r\n"+c.rest)
				require.NoError(t, err)
				<-begun
				over := make(chan struct{})
				go func() {
					defer close(over)
					if how == "revoke" {
						revoke()
					} else {
						_ = e.Close() // listen looks at its error
					}
				}()
				select {
				case <-over:
				case <-time.After(patience):
					require.Fail(t, "it waits for the client")
				}
			})
		}
	}
}
