//go:build linux

package presets

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// request is one that a CLI made.
type request struct{ host, method, path, body, authorization string }

// service answers for hosts of the world, below a certificate authority of its own.
type service struct {
	// proxy is the address that HTTPS_PROXY takes, ca the file that SSL_CERT_FILE does.
	proxy, ca string

	mu       sync.Mutex // guards requests
	requests []request
}

// taken returns the requests since the last call.
func (s *service) taken() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.requests
	s.requests = nil
	return out
}

// serve answers requests to the hosts with what answer says: a content type and a
// body.
func serve(t *testing.T, hosts []string, answer func(request) (string, string)) *service {
	t.Helper()
	s := &service{ca: filepath.Join(t.TempDir(), "ca.pem")}
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		q := request{r.Host, r.Method, r.URL.RequestURI(), string(body), r.Header.Get("Authorization")}
		s.mu.Lock()
		s.requests = append(s.requests, q)
		s.mu.Unlock()
		kind, text := answer(q)
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, text)
	}))
	api.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t, s.ca, hosts)}, MinVersion: tls.VersionTLS12}
	api.StartTLS()
	t.Cleanup(api.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "CONNECT", http.StatusMethodNotAllowed)
			return
		}
		tunnel(w, api.Listener.Addr().String())
	}))
	t.Cleanup(proxy.Close)
	s.proxy = proxy.URL
	return s
}

func tunnel(w http.ResponseWriter, to string) {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	up, err := dialer.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	down, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = down.Close() }()
	_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(up, down)
		_ = up.Close()
		close(done)
	}()
	_, _ = io.Copy(down, up)
	_ = down.Close()
	<-done
}

// certificate makes an authority, whose certificate goes into a file, and the
// certificate of the hosts.
func certificate(t *testing.T, file string, hosts []string) tls.Certificate {
	t.Helper()
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &authority.PublicKey, authority)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: strings.Join(hosts[:1], "")}, DNSNames: hosts, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err = x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, authority)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
