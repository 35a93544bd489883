package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Bounds of the server. Whoever asks is a process of this machine.
const (
	maxConns      = 16
	maxHeader     = 8 << 10
	readTimeout   = 5 * time.Second
	answerTimeout = 5 * time.Second
	idleTimeout   = 2 * time.Minute
)

// ErrNotLoopback says that what is shown is for this machine alone.
var ErrNotLoopback = errors.New("not a loopback address")

// ParseAddress reads "127.0.0.1:9464" or "[::1]:9464"; "localhost" is 127.0.0.1. Port
// 0 is one that is free. Other addresses are ErrNotLoopback; other names are not
// looked up, and refused.
func ParseAddress(s string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read address: %w", err)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	a, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read address: %w", err)
	}
	if !a.Addr().Unmap().IsLoopback() || a.Addr().Zone() != "" {
		return netip.AddrPort{}, ErrNotLoopback
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// Server shows a Metrics. The caller must Close it.
type Server struct {
	http    *http.Server
	address netip.AddrPort
	done    chan struct{}
	err     error // of serving; valid once done is closed
}

// Serve listens on a loopback address, ErrNotLoopback for another, and answers GET
// and HEAD of /metrics, from at most 16 connections. A request whose Host is not
// this machine by number, or "localhost", is refused: a web page whose name was
// pointed at this address could read the answer.
func Serve(ctx context.Context, a netip.AddrPort, m *Metrics) (*Server, error) {
	if !a.Addr().IsLoopback() {
		return nil, ErrNotLoopback
	}
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", a.String())
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.handler())
	s := &Server{
		http: &http.Server{
			Handler: local(mux), MaxHeaderBytes: maxHeader, ReadTimeout: readTimeout, ReadHeaderTimeout: readTimeout,
			WriteTimeout: 2 * answerTimeout, IdleTimeout: idleTimeout, ErrorLog: log.New(io.Discard, "", 0),
		},
		done: make(chan struct{}),
	}
	s.address, _ = netip.ParseAddrPort(l.Addr().String()) // of a TCP listener
	go func() {
		defer close(s.done)
		if err := s.http.Serve(&few{Listener: l, room: make(chan struct{}, maxConns)}); !errors.Is(err, http.ErrServerClosed) {
			s.err = err
		}
	}()
	return s, nil
}

// Address is where the server listens, with the port.
func (s *Server) Address() netip.AddrPort { return s.address }

// Close ends it, with every connection, and returns why it had ended before, if it
// had. It is idempotent.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	return errors.Join(s.err, err)
}

// local refuses requests that were not meant for this machine.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		a, err := netip.ParseAddr(trimBrackets(host))
		if host != "localhost" && (err != nil || !a.Unmap().IsLoopback()) {
			http.Error(w, "not for this host", http.StatusMisdirectedRequest)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

func trimBrackets(s string) string {
	if len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
		return s[1 : len(s)-1]
	}
	return s
}

// few accepts a connection when there is room for it.
type few struct {
	net.Listener
	room chan struct{}
}

// Accept waits for room first; connections above that wait in the queue of the
// listener.
func (f *few) Accept() (net.Conn, error) {
	f.room <- struct{}{}
	c, err := f.Listener.Accept()
	if err != nil {
		<-f.room
		return nil, err //nolint:wrapcheck // net/http looks at its type
	}
	return &counted{Conn: c, leave: sync.OnceFunc(func() { <-f.room })}, nil
}

type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close() //nolint:wrapcheck // as it is
}
