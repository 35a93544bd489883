package npm

import (
	"context"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

// Bounds of a fetch.
const (
	MaxTarball   = 256 << 20 // bytes
	fetchTimeout = 10 * time.Minute
	maxRedirects = 3
)

// Registry says where packages come from. It is a value.
type Registry struct {
	Base   string // https URL; http on loopback only
	CAFile string // absolute path of PEM certificates trusted besides the system's; "" for none
	Proxy  string // URL of an HTTP proxy; "" for none
}

// check parses what Registry holds.
func (r Registry) check() (base, proxy *url.URL, err error) {
	base, err = url.Parse(r.Base)
	if err != nil || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" || !safeScheme(base) {
		return nil, nil, fmt.Errorf("registry%s: want an https URL without user, query and fragment", shown(r.Base, base))
	}
	if r.Proxy == "" {
		return base, nil, nil
	}
	proxy, err = url.Parse(r.Proxy)
	if err != nil || proxy.Host == "" || (proxy.Scheme != "http" && proxy.Scheme != "https") {
		return nil, nil, errors.New("proxy: want an http or https URL") // it may hold a password
	}
	return base, proxy, nil
}

// shown is a registry that is refused, without what may be a secret in its address. It is
// nothing of one that cannot be taken apart.
func shown(text string, u *url.URL) string {
	if u == nil || u.Host == "" && strings.ContainsAny(text, "@?#") {
		return ""
	}
	clean := *u
	if clean.User != nil {
		clean.User = url.User("xxxxx") // a name alone may be a token
	}
	for _, part := range []*string{&clean.RawQuery, &clean.Fragment} {
		if *part != "" {
			*part = "xxxxx"
		}
	}
	clean.RawFragment = ""
	return " " + name.Quote(clean.String())
}

// safeScheme allows http to this machine, which is how tests and mirrors are reached.
func safeScheme(u *url.URL) bool {
	if u.Scheme == "https" {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

// Fetch gets the tarball of pkg at version from r, checks its integrity, and writes
// it to dst, which is truncated first. On error what dst holds is not to be used.
// progress, if not nil, is told the bytes so far and the total, 0 if unknown.
func Fetch(ctx context.Context, r Registry, pkg, version string, want Integrity, dst *os.File, progress func(done, total int64)) error {
	if err := fetch(ctx, r, pkg, version, want, dst, progress); err != nil {
		return fmt.Errorf("fetch %s@%s: %w", pkg, version, err)
	}
	return nil
}

func fetch(ctx context.Context, r Registry, pkg, version string, want Integrity, dst *os.File, progress func(done, total int64)) error {
	if err := manifest.CheckPackage(pkg, version); err != nil {
		return err
	}
	base, proxy, err := r.check()
	if err != nil {
		return err
	}
	client, err := r.client(proxy)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	at := base.JoinPath(pkg, "-", pkg[strings.LastIndex(pkg, "/")+1:]+"-"+version+".tgz")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := client.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the registry answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	if resp.ContentLength > MaxTarball {
		return fmt.Errorf("it is larger than %d bytes", MaxTarball)
	}
	return save(resp.Body, max(resp.ContentLength, 0), want, dst, progress)
}

// save writes and hashes at most MaxTarball bytes.
func save(r io.Reader, total int64, want Integrity, dst *os.File, progress func(done, total int64)) error {
	if err := dst.Truncate(0); err != nil {
		return err
	}
	h := sha512.New()
	n, err := io.Copy(io.MultiWriter(dst, h, &meter{total: total, report: progress}), io.LimitReader(r, MaxTarball+1))
	if err != nil {
		return withoutURL(err)
	}
	if n > MaxTarball {
		return fmt.Errorf("it is larger than %d bytes", MaxTarball)
	}
	return want.check(h)
}

// CopyFile copies the tarball in to dst, which is truncated first, and checks its
// integrity on the way. On error what dst holds is not to be used.
func CopyFile(in io.Reader, want Integrity, dst *os.File) error {
	if err := save(in, 0, want, dst, nil); err != nil {
		return fmt.Errorf("copy tarball: %w", err)
	}
	return nil
}

func (r Registry) client(proxy *url.URL) (*http.Client, error) {
	t := &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 30 * time.Second, ResponseHeaderTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
	}
	if proxy != nil {
		t.Proxy = http.ProxyURL(proxy)
	}
	if r.CAFile != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		pem, err := os.ReadFile(r.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read certificates: none in %s", r.CAFile)
		}
		t.TLSClientConfig.RootCAs = pool
	}
	return &http.Client{Transport: t, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects || !safeScheme(next.URL) || next.URL.User != nil ||
			(next.URL.Scheme == "http" && via[0].URL.Scheme == "https") {
			return errors.New("a redirect that is not taken")
		}
		return nil
	}}, nil
}

// withoutURL keeps what an owner's registry address may hold out of messages.
func withoutURL(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err
	}
	return err
}

type meter struct {
	done, total int64
	report      func(done, total int64)
}

func (m *meter) Write(p []byte) (int, error) {
	m.done += int64(len(p))
	if m.report != nil {
		m.report(m.done, m.total)
	}
	return len(p), nil
}
