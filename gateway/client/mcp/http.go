package mcp

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Path is where a Server answers over HTTP.
const Path = "/mcp"

const (
	maxClients    = 32
	clientTimeout = 30 * time.Minute // of a client that says nothing and has nothing running
)

const (
	// postHeader carries the ID that we give each request: a client's own is replaced.
	postHeader = "Lend-Request"
	// sessionHeader is the protocol's.
	sessionHeader = "Mcp-Session-Id"
)

// overHTTP makes the handler of clients over HTTP.
func (s *Server) overHTTP() http.Handler {
	return sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		if r.Method == http.MethodPost && r.Header.Get(sessionHeader) == "" && s.clients() >= maxClients {
			return nil
		}
		return s.server
	}, &sdk.StreamableHTTPOptions{SessionTimeout: clientTimeout, MaxRequestBodyBytes: maxMessage})
}

// ServeHTTP serves a request of a client, over MCP's "streamable HTTP". Who may ask is
// decided before (loopback.Endpoint). What a request has called is cancelled when its
// context is done, and what a client has, when it ends its session.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	done, err := s.enter()
	if err != nil || s.ctx.Err() != nil {
		if err == nil {
			done()
		}
		http.Error(w, "gone: nothing is lent any more", http.StatusGone)
		return
	}
	defer done()
	if r.URL.Path != Path {
		http.NotFound(w, r)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := context.AfterFunc(s.ctx, cancel)
	defer stop()
	id := rand.Text()
	r = r.Clone(ctx)
	r.Header.Set(postHeader, id)
	s.posted(id, ctx)
	defer s.posted(id, nil)
	if r.Method == http.MethodDelete {
		session := r.Header.Get(sessionHeader)
		s.cancelCalls(func(of *sdk.ServerSession) bool { return session != "" && of.ID() == session })
	}
	s.http.ServeHTTP(w, r)
}

// hangUp ends all clients over HTTP, when the scope has ended.
func (s *Server) hangUp() {
	for session := range s.server.Sessions() {
		if session.ID() != "" { // those of Serve have none
			_ = session.Close() // its requests have ended with the scope
		}
	}
}

// posted notes a request over HTTP, whose calls are cancelled when ctx is done; nil when
// it is over.
func (s *Server) posted(id string, ctx context.Context) { //nolint:revive // the context is what is noted
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx == nil {
		delete(s.posts, id)
		return
	}
	s.posts[id] = ctx
}

// clients counts those over HTTP.
func (s *Server) clients() (n int) {
	for range s.server.Sessions() {
		n++
	}
	return n
}
