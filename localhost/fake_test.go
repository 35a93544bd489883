package localhost

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// gatewayRuntime is what the gateway asks of a host.
var _ interface {
	Resolve(q route.Query) (route.Descriptor, error)
	Start(ctx context.Context, r route.StartRequest) (route.Process, error)
} = (*Host)(nil)

var (
	_ Store     = (*install.Store)(nil)
	_ Transport = (*process.Transport)(nil)
)

// fakeStore has releases that a test chooses; rig replaces Launch.
type fakeStore struct {
	mu         sync.Mutex
	releases   []install.Release
	superseded []install.Release
	damaged    []*install.Damage
	err        error
}

func (s *fakeStore) Superseded(key name.ConnectorKey, version name.Version, digest string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.superseded, func(r install.Release) bool {
		return r.Manifest.Key == key && r.Manifest.Version == version && r.Digest == digest
	})
}

func (s *fakeStore) update(now, was install.Release) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releases, s.superseded = []install.Release{now}, []install.Release{was}
}

func (s *fakeStore) Releases() ([]install.Release, []*install.Damage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.releases), slices.Clone(s.damaged), s.err
}

// damage has what is left of the releases be all that can be read.
func (s *fakeStore) damage(all ...*install.Damage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damaged = all
}

func (s *fakeStore) Launch(install.Release) (*install.Launch, error) { return nil, errLaunch }

func (s *fakeStore) set(releases ...install.Release) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releases = releases
}

var (
	errLaunch = errors.New("no release at /private/place")
	errTamper = errors.New("bytes of /private/place were changed")
)

// recorder is a transport that starts nothing and remembers what it should have.
type recorder struct {
	mu    sync.Mutex
	specs []process.Spec
	live  atomic.Int64
	err   error
	seen  func(process.Spec)
	last  *fakeProcess
}

func (r *recorder) Start(_ context.Context, s process.Spec) (route.Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.specs = append(r.specs, s)
	if r.seen != nil {
		r.seen(s)
	}
	if r.err != nil {
		return nil, r.err
	}
	r.live.Add(1)
	r.last = &fakeProcess{live: &r.live, done: make(chan struct{})}
	return r.last, nil
}

func (r *recorder) started() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.specs)
}

// fakeProcess lives until something ends it.
type fakeProcess struct {
	live   *atomic.Int64
	done   chan struct{}
	once   sync.Once
	closes atomic.Int64
}

func (p *fakeProcess) end() error {
	p.once.Do(func() {
		p.live.Add(-1)
		close(p.done)
	})
	return nil
}

func (p *fakeProcess) Stdin() io.WriteCloser { return nil }
func (p *fakeProcess) Stdout() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }
func (p *fakeProcess) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }
func (p *fakeProcess) Terminate() error      { return p.end() }
func (p *fakeProcess) Kill() error           { return p.end() }

func (p *fakeProcess) Wait(ctx context.Context) (route.Exit, error) {
	select {
	case <-p.done:
		return route.Exit{Signal: "SIGTERM"}, nil
	case <-ctx.Done():
		return route.Exit{}, ctx.Err()
	}
}

func (p *fakeProcess) Close() error {
	p.closes.Add(1)
	return p.end()
}

// rig is a host on fakes.
type rig struct {
	*Host
	store     *fakeStore
	transport *recorder
	log       *syncBuffer
	root      *connection.Root

	mu         sync.Mutex
	workspaces map[string]string
	prepareErr map[string]error // by digest
	verifyErr  map[string]error // by digest
	prepared   map[string]int   // by digest
	released   map[string]int   // by digest
}

// syncBuffer is a log that several goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newRig(tb testing.TB, releases ...install.Release) *rig {
	tb.Helper()
	root, err := connection.Open(filepath.Join(tb.TempDir(), "connections"))
	require.NoError(tb, err)
	require.NoError(tb, root.Sealed().Create(sealed.Source{Kind: sealed.KeyFile}))
	r := &rig{
		store: &fakeStore{releases: releases}, transport: &recorder{}, log: &syncBuffer{}, root: root,
		workspaces: map[string]string{}, prepareErr: map[string]error{}, verifyErr: map[string]error{},
		prepared: map[string]int{}, released: map[string]int{},
	}
	r.Host, err = New(Config{
		Store: r.store, Transport: r.transport, Connections: root, Log: zerolog.New(r.log),
		Workspaces: func(name string) (string, bool) {
			dir, ok := r.workspaces[name]
			return dir, ok
		},
	})
	require.NoError(tb, err)
	r.prepare = r.fakePrepare
	tb.Cleanup(func() {
		require.NoError(tb, r.Close())
		require.Zero(tb, r.transport.live.Load(), "nothing lives after Close")
		r.mu.Lock()
		defer r.mu.Unlock()
		require.Equal(tb, r.prepared, r.released, "every release was let go of")
	})
	return r
}

func (r *rig) fakePrepare(rel install.Release) (prepared, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.prepareErr[rel.Digest]; err != nil {
		return prepared{}, err
	}
	r.prepared[rel.Digest]++
	return prepared{
		path: filepath.Join(r.root.Dir(), "bin", "cli"), prefix: []string{"script.js"},
		env: []string{"RUNTIME_ENV=1"},
		verify: func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.verifyErr[rel.Digest]
		},
		close: func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.released[rel.Digest]++
			return nil
		},
	}, nil
}

func (r *rig) fail(what map[string]error, digest string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what[digest] = err
}

func (r *rig) reconciled(t *testing.T) []Receipt {
	t.Helper()
	receipts, err := r.Reconcile(t.Context())
	require.NoError(t, err)
	return receipts
}

// only returns the identity of the one current route.
func (r *rig) only(t *testing.T) route.Identity {
	t.Helper()
	all := r.current()
	require.Len(t, all, 1)
	return all[0].Identity
}

func (r *rig) account(t *testing.T, key, id string) *connection.Connection {
	t.Helper()
	c, err := r.root.Create(connectorKey(t, key), connectionID(t, id))
	require.NoError(t, err)
	return c
}

func connectorKey(tb testing.TB, s string) name.ConnectorKey {
	tb.Helper()
	k, err := name.ParseConnectorKey(s)
	require.NoError(tb, err)
	return k
}

func version(tb testing.TB, s string) name.Version {
	tb.Helper()
	v, err := name.ParseVersion(s)
	require.NoError(tb, err)
	return v
}

func connectionID(tb testing.TB, s string) name.ConnectionID {
	tb.Helper()
	c, err := name.ParseConnectionID(s)
	require.NoError(tb, err)
	return c
}

// release describes an installed release; content tells releases apart.
func release(tb testing.TB, key, ver, content string) install.Release {
	tb.Helper()
	return install.Release{
		Manifest: manifest.Manifest{
			Key: connectorKey(tb, key), Version: version(tb, ver), DisplayName: "Fake " + key,
			Secrets:  []manifest.Secret{{Name: "token", Env: "GH_TOKEN"}},
			Settings: []manifest.Setting{{Name: "host", Env: "GH_HOST", Default: "github.com"}},
			Login:    &manifest.Login{Arguments: []string{"auth", "login"}},
		},
		Digest:       strings.Repeat(content, 64),
		Contract:     argv.Contract{Command: "gh", Arguments: []string{"--no-prompt"}, Environment: []string{"GH_REPO", "HOME", "GH_TOKEN"}},
		ContractHash: "sha256:" + strings.Repeat("c", 64),
	}
}

func digestOf(content string) string { return strings.Repeat(content, 64) }

// states shows receipts as "key@version connection state".
func states(receipts []Receipt) []string {
	var all []string
	for _, r := range receipts {
		all = append(all, r.Identity.Connector.String()+"@"+r.Identity.Version.String()+" "+r.Identity.Connection.String()+" "+string(r.State))
	}
	return all
}
