package loopback

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// Bounds of an Endpoint.
const (
	maxConnections = 64 // the next ones wait in the system's queue
	maxHeader      = 16 << 10
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	// farewell is how long a client may take for what it is being told when its scope
	// ends.
	farewell = 2 * time.Second
)

// Errors of Listen and Open.
var (
	// ErrNotLoopback says that an address is not one of this machine's own loopback.
	ErrNotLoopback = errors.New("not a loopback address with a port: want 127.0.0.1:PORT or [::1]:PORT")
	// ErrClosed says that the Endpoint is closed.
	ErrClosed = errors.New("the endpoint is closed")
)

// Endpoint answers on one loopback address. A request is looked at in this order: its
// Host and Origin must be the endpoint's own, its bearer that of an open scope; only then
// is its body read. It is safe for concurrent use. The caller must Close it.
type Endpoint struct {
	listener net.Listener
	http     *http.Server
	log      zerolog.Logger
	hosts    []string
	ctx      context.Context //nolint:containedctx // an Endpoint is a lifetime
	end      context.CancelFunc
	serving  sync.WaitGroup
	conns    sync.WaitGroup // what net/http has not done with yet

	mu     sync.Mutex // guards what follows
	closed bool
	scopes map[*scope]struct{}
}

// scope is what one bearer opens.
type scope struct {
	hash    [sha256.Size]byte // of the bearer
	handler http.Handler
	ctx     context.Context //nolint:containedctx // a scope is a lifetime
	end     context.CancelFunc
	wg      sync.WaitGroup // requests; added to under Endpoint.mu
}

// Listen makes an Endpoint on address, which is a loopback IP address with a port, 0 for
// any: ErrNotLoopback.
func Listen(ctx context.Context, address string, log zerolog.Logger) (*Endpoint, error) {
	at, _ := netip.ParseAddrPort(address) // what is none is no loopback address
	if !at.Addr().IsLoopback() || at.Addr().Zone() != "" {
		return nil, ErrNotLoopback
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	e := &Endpoint{listener: l, log: log, scopes: map[*scope]struct{}{}}
	_, port, _ := net.SplitHostPort(l.Addr().String()) // it has one
	e.hosts = []string{l.Addr().String(), net.JoinHostPort("localhost", port)}
	e.ctx, e.end = context.WithCancel(context.Background())
	e.http = &http.Server{
		Handler: e, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return e.ctx },
		ConnState:   e.count,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ErrorLog:    quiet(),
	}
	e.serving.Go(func() {
		if err := e.http.Serve(newBounded(l, maxConnections)); err != nil && !errors.Is(err, http.ErrServerClosed) {
			e.log.Error().Msg("loopback endpoint cannot accept")
		}
	})
	return e, nil
}

// quiet is a logger of net/http that says nothing: it would log what peers have sent.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// URL is where clients connect; it has no path.
func (e *Endpoint) URL() string { return "http://" + e.listener.Addr().String() }

// Open opens h to whoever has the bearer that it returns: 260 random bits, which are kept
// nowhere. It is of no use after revoke, after until is closed, and after the end of the
// Endpoint: the contexts of its requests are done then, and revoke waits for them. The
// error is ErrClosed.
func (e *Endpoint) Open(h http.Handler, until <-chan struct{}) (bearer string, revoke func(), err error) {
	bearer = rand.Text() + rand.Text()
	sc := &scope{hash: sha256.Sum256([]byte(bearer)), handler: h}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return "", nil, ErrClosed
	}
	sc.ctx, sc.end = context.WithCancel(e.ctx)
	e.scopes[sc] = struct{}{}
	e.serving.Go(func() {
		select {
		case <-until:
		case <-sc.ctx.Done():
		}
		e.revoke(sc)
	})
	return bearer, func() { e.revoke(sc) }, nil
}

// revoke ends a scope and waits for its requests.
func (e *Endpoint) revoke(sc *scope) {
	e.mu.Lock()
	delete(e.scopes, sc)
	e.mu.Unlock()
	sc.end()
	sc.wg.Wait()
}

// Close revokes all bearers, waits for what runs, and stops listening. It is idempotent.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	e.closed = true
	all := make([]*scope, 0, len(e.scopes))
	for sc := range e.scopes {
		all = append(all, sc)
	}
	e.mu.Unlock()
	e.end()
	for _, sc := range all {
		e.revoke(sc)
	}
	err := e.http.Close()
	e.serving.Wait()
	e.conns.Wait() // one that was told that its request is too large stays for half a second
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close endpoint: %w", err)
	}
	return nil
}

// count counts connections.
func (e *Endpoint) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		e.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		e.conns.Done()
	case http.StateActive, http.StateIdle:
	}
}

// ServeHTTP answers one request.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !e.fromHere(r) {
		http.Error(w, "forbidden: another host or origin", http.StatusForbidden)
		return
	}
	sc := e.enter(r)
	if sc == nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "unauthorized: no bearer of an open session", http.StatusUnauthorized)
		return
	}
	defer sc.wg.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	cut := make(chan struct{})
	stop := context.AfterFunc(sc.ctx, func() {
		defer close(cut)
		cancel()
		if c, ok := r.Context().Value(connKey{}).(*boundedConn); ok {
			c.last.Store(true)
		}
		c := http.NewResponseController(w) // a client that has stopped is not waited for
		_ = c.SetReadDeadline(time.Unix(1, 0))
		_ = c.SetWriteDeadline(time.Now().Add(farewell))
	})
	defer func() {
		if !stop() {
			<-cut
		}
	}()
	r = r.Clone(ctx)
	r.Header.Del("Authorization") // nothing behind this needs it
	sc.handler.ServeHTTP(w, r)
}

// fromHere tells whether a request names this endpoint as its host, and comes from no
// page of another origin: a browser would bring the pages of others here.
func (e *Endpoint) fromHere(r *http.Request) bool {
	if !slices.Contains(e.hosts, strings.ToLower(r.Host)) {
		return false
	}
	for _, origin := range r.Header.Values("Origin") {
		host, ok := strings.CutPrefix(origin, "http://")
		if !ok || !slices.Contains(e.hosts, host) {
			return false
		}
	}
	return true
}

// enter finds the scope of a request's bearer, nil if there is none. All scopes are
// compared, each in a time that tells nothing.
func (e *Endpoint) enter(r *http.Request) (found *scope) {
	said := r.Header.Values("Authorization")
	if len(said) != 1 {
		return nil
	}
	scheme, bearer, _ := strings.Cut(said[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	hash := sha256.Sum256([]byte(bearer))
	e.mu.Lock()
	defer e.mu.Unlock()
	for sc := range e.scopes {
		if subtle.ConstantTimeCompare(sc.hash[:], hash[:]) == 1 {
			found = sc
		}
	}
	if found != nil {
		found.wg.Add(1)
	}
	return found
}

// bounded is a listener that accepts no more than so many connections at once.
type bounded struct {
	net.Listener
	slots chan struct{}
	done  chan struct{}
	once  sync.Once
}

func newBounded(l net.Listener, most int) *bounded {
	return &bounded{Listener: l, slots: make(chan struct{}, most), done: make(chan struct{})}
}

func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.slots <- struct{}{}:
	case <-b.done:
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.slots
		return nil, err
	}
	return &boundedConn{Conn: c, free: sync.OnceFunc(func() { <-b.slots })}, nil
}

func (b *bounded) Close() error {
	b.once.Do(func() { close(b.done) })
	return b.Listener.Close()
}

// boundedConn is a connection of it.
type boundedConn struct {
	net.Conn
	free func()
	// last says that the request that is answered is the last one: net/http takes the
	// interrupted read for the end of the client, and would end the next one with it.
	last atomic.Bool
}

// connKey is of the connection in a request's context.
type connKey struct{}

func (c *boundedConn) Read(p []byte) (int, error) {
	if c.last.Load() {
		return 0, io.EOF
	}
	return c.Conn.Read(p)
}

func (c *boundedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
