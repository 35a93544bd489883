package remote

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
	"github.com/stretchr/testify/require"
)

const body = "the bytes of an archive"

// web is a small internet: names with addresses, and one https server behind all of
// the public ones.
type web struct {
	*Client
	pem []byte

	mu      sync.Mutex
	names   map[string][]string // guarded by mu, like the rest
	dialled []netip.AddrPort
	asked   []string // host and path
}

func newWeb(t *testing.T, h http.HandlerFunc) *web {
	t.Helper()
	return newWebOf(t, h, true)
}

// newWebOf says whether the server speaks HTTP/2, or the older protocol alone.
func newWebOf(t *testing.T, h http.HandlerFunc, http2 bool) *web {
	t.Helper()
	w := &web{names: map[string][]string{
		"example.com": {"93.184.215.14"}, "files.example.com": {"2606:2800:21f::1", "93.184.215.15"}, "other.example.net": {"93.184.215.16"},
	}}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.asked = append(w.asked, r.Host+r.URL.Path)
		w.mu.Unlock()
		h(rw, r)
	}))
	cert := w.certificate(t)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	s.EnableHTTP2 = http2
	s.StartTLS()
	t.Cleanup(s.Close)
	at := s.Listener.Addr().String()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(w.pem))
	w.Client = &Client{
		roots: pool,
		lookup: func(_ context.Context, _, host string) ([]netip.Addr, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			var out []netip.Addr
			for _, a := range w.names[host] {
				out = append(out, netip.MustParseAddr(a))
			}
			return out, nil
		},
		connectTo: func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
			w.mu.Lock()
			w.dialled = append(w.dialled, to)
			w.mu.Unlock()
			if to.Addr().Is6() {
				return nil, errors.New("no route to host")
			}
			return new(net.Dialer).DialContext(ctx, network, at)
		},
	}
	return w
}

func (w *web) certificate(t *testing.T) tls.Certificate {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"example.com", "*.example.com", "other.example.net"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	require.NoError(t, err)
	w.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: k}
}

func archive() manifest.Archive {
	return manifest.Archive{URL: "https://example.com/a/tool.tar.gz", Hosts: []string{"example.com", "files.example.com"}, Size: int64(len(body))}
}

func (w *web) fetch(t *testing.T, a manifest.Archive) (string, error) {
	t.Helper()
	var b bytes.Buffer
	err := w.Fetch(t.Context(), a, &b, nil)
	return b.String(), err
}

func serveBody(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, body) }

func TestFetch(t *testing.T) {
	t.Parallel()
	w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.Host == "example.com" {
			http.Redirect(rw, r, "https://files.example.com/b?token=secret", http.StatusFound)
			return
		}
		if r.Header.Get("Accept-Encoding") != "identity" || r.Header.Get("Referer") != "" || r.URL.Query().Get("token") != "secret" {
			rw.WriteHeader(http.StatusTeapot)
			return
		}
		serveBody(rw, r)
	})
	var b bytes.Buffer
	var done int64
	require.NoError(t, w.Fetch(t.Context(), archive(), &b, func(n, total int64) {
		require.EqualValues(t, len(body), total)
		done = n
	}))
	require.Equal(t, body, b.String())
	require.EqualValues(t, len(body), done)
	require.Equal(t, []string{"example.com/a/tool.tar.gz", "files.example.com/b"}, w.asked)
	require.Equal(t, "93.184.215.14:443", w.dialled[0].String())
	require.Equal(t, "93.184.215.15:443", w.dialled[len(w.dialled)-1].String(), "the next address is tried where one does not answer")
}

// TestRemoteArchiveHosts: only the hosts of the release are ever asked, whatever a
// redirect says.
func TestRemoteArchiveHosts(t *testing.T) {
	t.Parallel()
	for n, to := range map[string]string{
		"other-host":    "https://other.example.net/x",
		"subdomain":     "https://evil.example.com/x",
		"suffix":        "https://notexample.com/x",
		"capital":       "https://EXAMPLE.com/x",
		"trailing-dot":  "https://example.com./x",
		"plain-http":    "http://example.com/x",
		"port":          "https://example.com:8443/x",
		"standard-port": "https://example.com:443/x",
		"user":          "https://user:password@example.com/x",
		"fragment":      "https://example.com/x#y",
		"address":       "https://93.184.215.14/x",
		"loopback":      "https://127.0.0.1/x",
		"file":          "file:///etc/passwd",
		"opaque":        "https:example.com/x",
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			first := true
			w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {
				if first {
					first = false
					rw.Header().Set("Location", to)
					rw.WriteHeader(http.StatusFound)
					return
				}
				serveBody(rw, r)
			})
			got, err := w.fetch(t, archive())
			if n == "opaque" && err == nil { // resolved against the first address, which is taken
				require.Equal(t, []string{"example.com/a/tool.tar.gz", "example.com/x"}, w.asked)
				return
			}
			require.ErrorIs(t, err, ErrRefused)
			require.Empty(t, got)
			require.Len(t, w.asked, 1)
			require.Len(t, w.dialled, 1, "nobody else was called")
			require.NotContains(t, err.Error(), "password")
			require.NotContains(t, err.Error(), "::ffff:")

			a := archive() // and the first address is looked at in the same way
			a.URL = to
			_, err = w.fetch(t, a)
			require.ErrorIs(t, err, ErrRefused)
			require.Len(t, w.dialled, 1)
		})
	}
	t.Run("no-address", func(t *testing.T) {
		t.Parallel()
		w := newWeb(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", "https://example.com:bad/x?token=canary")
			rw.WriteHeader(http.StatusFound)
		})
		_, err := w.fetch(t, archive())
		require.ErrorIs(t, err, ErrRefused)
		require.NotContains(t, err.Error(), "canary", "a redirect's address may hold a token")
	})
	t.Run("too-many", func(t *testing.T) {
		t.Parallel()
		w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, r.URL.Path+"x", http.StatusFound) })
		_, err := w.fetch(t, archive())
		require.ErrorIs(t, err, ErrRefused)
		require.Len(t, w.asked, 1+maxRedirects)
	})
}

// TestRemoteArchiveAddresses: a name that leads into a private network, at once or only
// when it is asked again, is not connected to.
func TestRemoteArchiveAddresses(t *testing.T) {
	t.Parallel()
	for n, addresses := range map[string][]string{
		"loopback": {"127.0.0.1"}, "private": {"10.1.2.3"}, "metadata": {"169.254.169.254"}, "mapped": {"::ffff:127.0.0.1"},
		"one-of-two": {"93.184.215.14", "192.168.1.1"}, "none": nil, "zone": {"fe80::1%eth0"}, "unspecified": {"0.0.0.0"},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			w := newWeb(t, serveBody)
			w.names["example.com"] = addresses
			_, err := w.fetch(t, archive())
			require.ErrorIs(t, err, ErrRefused)
			require.Empty(t, w.dialled)
		})
	}
	t.Run("redirect", func(t *testing.T) {
		t.Parallel()
		w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "https://files.example.com/b", http.StatusFound)
		})
		w.names["files.example.com"] = []string{"10.0.0.1"}
		_, err := w.fetch(t, archive())
		require.ErrorIs(t, err, ErrRefused)
		require.Len(t, w.dialled, 1)
	})
	t.Run("rebinding", func(t *testing.T) {
		t.Parallel()
		w := newWeb(t, serveBody)
		inner := w.lookup
		looked := 0
		w.lookup = func(ctx context.Context, network, host string) ([]netip.Addr, error) {
			looked++
			if looked > 1 {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}
			return inner(ctx, network, host)
		}
		got, err := w.fetch(t, archive())
		require.NoError(t, err)
		require.Equal(t, body, got)
		require.Equal(t, 1, looked, "what was looked at is what is dialled")
		require.Equal(t, "93.184.215.14:443", w.dialled[0].String())
	})
	t.Run("socket", func(t *testing.T) {
		t.Parallel()
		require.ErrorIs(t, checkSocket("tcp4", "127.0.0.1:443", nil), ErrRefused)
		require.ErrorIs(t, checkSocket("tcp6", "[::1]:443", nil), ErrRefused)
		require.ErrorIs(t, checkSocket("tcp4", "nonsense", nil), ErrRefused)
		require.NoError(t, checkSocket("tcp4", "93.184.215.14:443", nil))
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		_, err = new(Client).connect(t.Context(), "tcp", netip.MustParseAddrPort(l.Addr().String()))
		require.ErrorIs(t, err, ErrRefused, "the dialler itself refuses what is not public")
	})
}

// TestNoProxy: what the environment says about proxies is nobody's business here.
func TestNoProxy(t *testing.T) {
	var called bool
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called = true }))
	defer proxy.Close()
	for _, v := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY"} {
		t.Setenv(v, proxy.URL)
	}
	w := newWeb(t, serveBody)
	got, err := w.fetch(t, archive())
	require.NoError(t, err)
	require.Equal(t, body, got)
	require.False(t, called)
}

// TestRemoteArchiveAnswers: an answer that is not the archive's bytes in full.
func TestRemoteArchiveAnswers(t *testing.T) {
	t.Parallel()
	for n, h := range map[string]http.HandlerFunc{
		"not-found": http.NotFound,
		"partial-content": func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(http.StatusPartialContent)
			serveBody(rw, r)
		},
		"longer":  func(rw http.ResponseWriter, r *http.Request) { serveBody(rw, r); serveBody(rw, r) },
		"shorter": func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, body[:5]) },
		"longer-streamed": func(rw http.ResponseWriter, r *http.Request) {
			serveBody(rw, r)
			_ = http.NewResponseController(rw).Flush()
			_, _ = io.WriteString(rw, "!")
		},
		"shorter-streamed": func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, body[:5])
			_ = http.NewResponseController(rw).Flush()
		},
		"encoded": func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(rw)
			_, _ = io.WriteString(z, body)
			_ = z.Close()
		},
		"encoded-in-the-same-length": func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Encoding", "br")
			rw.Header().Set("Content-Length", strconv.Itoa(len(body)))
			serveBody(rw, r)
		},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			got, err := newWeb(t, h).fetch(t, archive())
			require.ErrorIs(t, err, ErrRefused)
			if n == "longer" || n == "shorter" {
				require.ErrorContains(t, err, "the release says")
				require.Empty(t, got, "nothing of it is read")
			}
		})
	}
	t.Run("cut-off", func(t *testing.T) {
		t.Parallel()
		_, err := newWeb(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = io.WriteString(rw, body[:5])
			panic(http.ErrAbortHandler)
		}).fetch(t, archive())
		require.ErrorIs(t, err, ErrFailed)
	})
	t.Run("no-http", func(t *testing.T) {
		t.Parallel()
		_, err := newWebOf(t, func(rw http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(rw).Hijack()
			if err == nil {
				_, _ = io.WriteString(c, "\x1b[31m"+strings.Repeat("x", 10_000)+"\r\n")
				_ = c.Close()
			}
		}, false).fetch(t, archive())
		require.ErrorIs(t, err, ErrFailed)
		require.Less(t, len(err.Error()), 2*name.MaxQuoted, "what a host says is bounded")
		require.NotContains(t, err.Error(), "\x1b")
	})
	t.Run("stalled", func(t *testing.T) {
		t.Parallel()
		w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = io.WriteString(rw, body[:5])
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
		})
		w.stall = 50 * time.Millisecond
		got, err := w.fetch(t, archive())
		require.ErrorIs(t, err, ErrFailed)
		require.ErrorContains(t, err, "no byte of it came for 50ms")
		require.Equal(t, body[:5], got)
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		w := newWeb(t, func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		})
		require.ErrorIs(t, w.Fetch(ctx, archive(), io.Discard, nil), context.Canceled)
	})
	t.Run("writer-fails", func(t *testing.T) {
		t.Parallel()
		r, pw := io.Pipe()
		require.NoError(t, r.Close())
		require.ErrorIs(t, newWeb(t, serveBody).Fetch(t.Context(), archive(), pw, nil), io.ErrClosedPipe)
	})
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	w := newWeb(t, serveBody)
	w.roots = nil
	_, err := w.fetch(t, archive())
	require.ErrorAs(t, err, new(*tls.CertificateVerificationError))

	w.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	_, err = w.fetch(t, archive())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(w.CAFile, []byte("none"), 0o600))
	_, err = w.fetch(t, archive())
	require.ErrorContains(t, err, "none in ca.pem")
	require.NoError(t, os.WriteFile(w.CAFile, w.pem, 0o600))
	got, err := w.fetch(t, archive())
	require.NoError(t, err)
	require.Equal(t, body, got)
}

func TestPublic(t *testing.T) {
	t.Parallel()
	for _, a := range []string{"8.8.8.8", "93.184.215.14", "172.32.0.1", "100.128.0.1", "2606:2800:21f::1", "::ffff:8.8.8.8", "64:ff9b::808:808"} {
		require.True(t, Public(netip.MustParseAddr(a)), a)
	}
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.1.2.3", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8",
		"192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::7f00:1", "64:ff9b::a00:1", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:a00:1::1",
		"3fff::1", "5f00::1", "fc00::1", "fd00::1", "fe80::1", "fec0::1", "ff02::1", "fe80::1%eth0", "2606:2800:21f::1%eth0",
	} {
		require.False(t, Public(netip.MustParseAddr(a)), a)
	}
	require.False(t, Public(netip.Addr{}))
}
