package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/gateway/internal/ownersocket"
)

// Bounds of one connection.
const (
	maxRequest     = 64 << 10
	requestTimeout = 30 * time.Second
	maxConnections = 32
	// closePatience is how long Close waits for requests before it cuts them off.
	closePatience = 5 * time.Second
	// maxRefusalLines bounds the log lines about refused connections in a minute.
	maxRefusalLines = 10
)

// ErrInUse says that another gateway answers on the socket.
var ErrInUse = errors.New("another gateway is running here")

// Server answers on one socket. Its zero value is not usable; see Listen.
type Server struct {
	http     *http.Server
	listener net.Listener
	done     chan struct{}
	closing  chan struct{} // closed by Close: who watches is let go
	close    sync.Once
	err      error
	patience time.Duration

	mu       sync.Mutex // guards over, and adding to requests
	over     bool
	requests sync.WaitGroup
}

// Listen makes the socket at path and serves b on it until Close. The directory
// of path must be the user's own and closed to others. A socket that nobody
// answers on is replaced; otherwise the error is ErrInUse.
func Listen(ctx context.Context, path string, b Backend, log zerolog.Logger) (*Server, error) {
	raw, err := ownersocket.Listen(ctx, "admin socket", path)
	if errors.Is(err, ownersocket.ErrInUse) {
		return nil, ErrInUse
	}
	if err != nil {
		return nil, err
	}
	s := &Server{
		listener: guard(raw, log),
		done:     make(chan struct{}),
		closing:  make(chan struct{}),
		patience: closePatience,
	}
	s.http = &http.Server{
		Handler:           s.counted(handler(b, log, s.closing)),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      2 * requestTimeout,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          nil,
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error().Err(err).Msg("admin socket failed")
		}
	}()
	return s, nil
}

// Close ends the server, waits for the requests that run, and removes the
// socket. One that takes long is cut off, and then waited for. It is idempotent.
func (s *Server) Close() error {
	s.close.Do(func() {
		close(s.closing)
		ctx, cancel := context.WithTimeout(context.Background(), s.patience)
		defer cancel()
		if s.err = s.http.Shutdown(ctx); errors.Is(s.err, context.DeadlineExceeded) {
			s.err = s.http.Close()
		}
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
		s.requests.Wait()
		<-s.done
	})
	return s.err
}

// counted lets Close wait for requests.
func (s *Server) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		if s.over {
			s.mu.Unlock()
			return // its connection is closed already
		}
		s.requests.Add(1)
		s.mu.Unlock()
		defer s.requests.Done()
		h.ServeHTTP(w, r)
	})
}

func handler(b Backend, log zerolog.Logger, closing <-chan struct{}) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", answer(log, func(r *http.Request) (any, error) { return b.Status(r.Context()) }))
	mux.HandleFunc("POST /v1/reconcile", answer(log, func(r *http.Request) (any, error) { return b.Reconcile(r.Context()) }))
	mux.HandleFunc("POST /v1/checkpoint", answer(log, func(r *http.Request) (any, error) {
		if err := b.Checkpoint(r.Context()); err != nil {
			return nil, err
		}
		return b.Status(r.Context())
	}))
	mux.HandleFunc("GET /v1/operations", answer(log, list(b)))
	mux.HandleFunc("GET /v1/operations/{id}", answer(log, show(b)))
	mux.HandleFunc("POST /v1/operations/{id}/cancel", answer(log, cancel(b)))
	mux.Handle("GET /v1/watch/operations", &watcher{backend: b, log: log, slots: make(chan struct{}, maxWatchers), closing: closing})
	if r, ok := b.(Revoker); ok {
		revoking(mux, r, log)
	}
	if i, ok := b.(Inviter); ok {
		inviting(mux, i, log, closing)
	}
	return mux
}

type failure struct {
	Error string `json:"error"`
}

// request answers one request with what is sent as JSON.
type request func(*http.Request) (any, error)

func answer(log zerolog.Logger, f request) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		v, err := f(r.WithContext(ctx))
		switch {
		case err == nil:
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(v); err != nil {
				log.Debug().Err(err).Msg("admin answer not delivered")
			}
		case errors.Is(err, ErrNoOperation):
			fail(w, http.StatusNotFound, err)
		case errors.Is(err, ErrAmbiguous):
			fail(w, http.StatusConflict, err)
		default:
			log.Error().Err(err).Msg("admin request failed")
			fail(w, http.StatusInternalServerError, err)
		}
	}
}

func fail(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(failure{err.Error()}) // who does not read it knows
}

// guard lets only the owner in. A lent command may connect as fast as it can: few of
// its refusals are logged.
func guard(l net.Listener, log zerolog.Logger) *guardedListener {
	few := log.Sample(&zerolog.BurstSampler{Burst: maxRefusalLines, Period: time.Minute})
	return &guardedListener{Listener: l, log: few, slots: make(chan struct{}, maxConnections)}
}

type guardedListener struct {
	net.Listener
	log   zerolog.Logger
	slots chan struct{}
}

func (g *guardedListener) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if err := g.admit(c); err != nil {
			g.log.Warn().Err(err).Msg("admin connection refused")
			_ = c.Close()
			continue
		}
		return &slotConn{Conn: c, release: sync.OnceFunc(func() { <-g.slots })}, nil
	}
}

func (g *guardedListener) admit(c net.Conn) error {
	who, err := ownersocket.PeerOf(c)
	if err != nil {
		return err
	}
	if who.User != 0 && who.User != os.Getuid() {
		return fmt.Errorf("user %d is not the owner", who.User)
	}
	if err := notOurs(who.Process); err != nil {
		return err
	}
	select {
	case g.slots <- struct{}{}:
		return nil
	default:
		return errors.New("too many connections")
	}
}

type slotConn struct {
	net.Conn
	release func()
}

func (c *slotConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
