package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lendcli/lend/localhost/manifest"
)

// ErrRefused means that a host, address, redirect or answer is not one that the release
// allows.
var ErrRefused = errors.New("not taken")

// Bounds of one fetch.
const (
	maxRedirects  = 3
	fetchTimeout  = 15 * time.Minute
	headerTimeout = time.Minute
	stallTimeout  = time.Minute // without one byte of the body
	maxHeader     = 64 << 10    // bytes
)

// Client fetches archives. Its methods may be called from any goroutine.
type Client struct {
	CAFile string // absolute path of PEM certificates trusted besides the system's; "" for none

	// Tests take the network's place; nil is the network.
	lookup    func(ctx context.Context, network, host string) ([]netip.Addr, error)
	connectTo func(ctx context.Context, network string, at netip.AddrPort) (net.Conn, error)
	roots     *x509.CertPool
	stall     time.Duration // instead of stallTimeout; 0 is that
}

// Fetch writes the bytes of a to w: exactly a.Size of them, or an error. It checks no
// digest: w does. Errors match ErrRefused where the release or this package's rules do
// not allow what the web answers, and ErrFailed where the web does not answer, or not to
// the end; they name no URL, since a redirect's may hold a token, and say at most
// name.MaxQuoted bytes of what a host said. progress, if not nil, is told the bytes so far.
func (c *Client) Fetch(ctx context.Context, a manifest.Archive, w io.Writer, progress func(done, total int64)) error {
	if err := c.fetch(ctx, a, w, progress); err != nil {
		return fmt.Errorf("fetch archive: %w", err)
	}
	return nil
}

func (c *Client) fetch(ctx context.Context, a manifest.Archive, w io.Writer, progress func(done, total int64)) error {
	at, err := url.Parse(a.URL)
	if err != nil {
		return fmt.Errorf("%w: no URL", ErrRefused)
	}
	if err := allowed(at, a.Hosts); err != nil {
		return err
	}
	transport, err := c.transport()
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, &failure{fmt.Errorf("it took longer than %s", fetchTimeout)})
	defer cancel()
	watch := newWatch(ctx, cmp.Or(c.stall, stallTimeout))
	defer watch.end()
	resp, err := follow(watch.ctx, transport, at, a.Hosts)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // what counts has been read
	if err := acceptable(resp, a.Size); err != nil {
		return err
	}
	watch.begin()
	return save(&watchedBody{body: resp.Body, watch: watch}, a.Size, w, progress)
}

// follow asks for at, which is allowed, and for what it is redirected to, each time by a
// request of its own: no cookie, no Referer. The caller closes the body.
func follow(ctx context.Context, t http.RoundTripper, at *url.URL, hosts []string) (*http.Response, error) {
	for range maxRedirects + 1 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept-Encoding", "identity")
		req.Header.Set("User-Agent", "lend")
		resp, err := t.RoundTrip(req)
		if err != nil {
			return nil, failed(ctx, err)
		}
		if !redirects(resp) {
			return resp, nil
		}
		_ = resp.Body.Close() // nothing of it is wanted
		if at, err = resp.Location(); err != nil {
			return nil, fmt.Errorf("%w: a redirect to what is no address", ErrRefused)
		}
		if err := allowed(at, hosts); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: more than %d redirects", ErrRefused, maxRedirects)
}

func redirects(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return resp.Header.Get("Location") != ""
	}
	return false
}

// acceptable looks at an answer before any of its body is read.
func acceptable(resp *http.Response, size int64) error {
	switch {
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%w: the host answers %d %s", ErrRefused, resp.StatusCode, http.StatusText(resp.StatusCode))
	case resp.ContentLength >= 0 && resp.ContentLength != size:
		return fmt.Errorf("%w: it has %d bytes, the release says %d", ErrRefused, resp.ContentLength, size)
	}
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" || resp.Uncompressed {
		return fmt.Errorf("%w: it comes in an encoding", ErrRefused)
	}
	return nil
}

func save(r io.Reader, size int64, w io.Writer, progress func(done, total int64)) error {
	const chunk = 1 << 20
	for done := int64(0); done < size; {
		n, err := io.CopyN(w, r, min(chunk, size-done))
		done += n
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: it ends after %d bytes of %d", ErrRefused, done, size)
		}
		if err != nil {
			return err
		}
		if progress != nil {
			progress(done, size)
		}
	}
	var one [1]byte
	if n, _ := io.ReadFull(r, one[:]); n != 0 {
		return fmt.Errorf("%w: it is larger than %d bytes", ErrRefused, size)
	}
	return nil
}

// allowed checks one address of the web, the first or a redirect's.
func allowed(u *url.URL, hosts []string) error {
	switch {
	case u.Scheme != "https" || u.Opaque != "":
		return fmt.Errorf("%w: it is not https", ErrRefused)
	case u.User != nil || u.Fragment != "":
		return fmt.Errorf("%w: a user or a fragment in its address", ErrRefused)
	case !slices.Contains(hosts, u.Host): // so it has no port either
		return fmt.Errorf("%w: host %q is not one of the release's", ErrRefused, u.Host)
	}
	return nil
}

func (c *Client) transport() (*http.Transport, error) {
	roots, err := c.certificates()
	if err != nil {
		return nil, err
	}
	return &http.Transport{
		Proxy:       nil, // what it connects to could not be checked
		DialContext: c.dial, DisableCompression: true, ForceAttemptHTTP2: true,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: headerTimeout, MaxResponseHeaderBytes: maxHeader,
	}, nil
}

// certificates returns nil for the system's alone.
func (c *Client) certificates() (*x509.CertPool, error) {
	if c.CAFile == "" {
		return c.roots, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read certificates: none in %s", filepath.Base(c.CAFile))
	}
	return pool, nil
}
