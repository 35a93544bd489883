package localhost

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	process.Main()
	if len(os.Args) > 2 && os.Args[1] == "fixture" {
		os.Exit(fixture(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

// wrong changes one field of an identity to another well-formed value.
func wrong(t *testing.T) map[string]func(*route.Identity) {
	t.Helper()
	return map[string]func(*route.Identity){
		"connection":    func(id *route.Identity) { id.Connection = connectionID(t, "other") },
		"connector":     func(id *route.Identity) { id.Connector = connectorKey(t, "other") },
		"version":       func(id *route.Identity) { id.Version = version(t, "9.9.9") },
		"digest":        func(id *route.Identity) { id.ReleaseDigest = digestOf("0") },
		"epoch":         func(id *route.Identity) { id.Generation.Epoch = strings.Repeat("0", 32) },
		"generation":    func(id *route.Identity) { id.Generation.Number++ },
		"contract-hash": func(id *route.Identity) { id.ContractHash = "sha256:" + digestOf("0") },
	}
}

func TestStartCLIWrongIdentity(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	r.reconciled(t)
	dir := t.TempDir()
	for field, change := range wrong(t) {
		id := r.only(t)
		change(&id)
		_, err := r.StartCLI(t.Context(), StartCLIRequest{Identity: id, WorkingDirectory: dir})
		require.ErrorIs(t, err, route.ErrIdentityMismatch, field)
		_, err = r.Start(t.Context(), route.StartRequest{Identity: id})
		require.ErrorIs(t, err, route.ErrIdentityMismatch, field)
	}
	require.Zero(t, r.transport.started(), "zero processes")
	c, err := r.StartCLI(t.Context(), StartCLIRequest{Identity: r.only(t), WorkingDirectory: dir})
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// Another boot of the host with the same releases has other identities.
func TestStartCLIAfterRestart(t *testing.T) {
	t.Parallel()
	rel := release(t, "github", "1.0.0", "a")
	r := newRig(t, rel)
	r.reconciled(t)
	old := r.only(t)
	again, err := New(Config{Store: r.store, Transport: r.transport, Connections: r.root})
	require.NoError(t, err)
	again.prepare = r.fakePrepare
	_, err = again.Reconcile(t.Context())
	require.NoError(t, err)
	_, err = again.StartCLI(t.Context(), StartCLIRequest{Identity: old, WorkingDirectory: t.TempDir()})
	require.ErrorIs(t, err, route.ErrIdentityMismatch)
	require.NoError(t, again.Close())
	require.Zero(t, r.transport.started())
}

func TestStartCLISpecIsExact(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the environment is that of unix")
	}
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	account := r.account(t, "github", "work")
	declared := connection.DeclaredBy(r.store.releases[0].Manifest)
	require.NoError(t, account.SetSecret(declared, label(t, "token"), "", strings.NewReader("secret-value\n")))
	require.NoError(t, account.SetSetting(declared, "HTTPS_PROXY", "http://proxy"))
	r.reconciled(t)
	dir := t.TempDir()
	c, err := r.StartCLI(t.Context(), StartCLIRequest{
		Identity: r.only(t), WorkingDirectory: dir, Stdin: true,
		Arguments:   []string{"--no-prompt", "issue", "list"},
		Environment: []argv.Variable{{Name: "GH_REPO", Value: "a/b"}},
	})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	path := filepath.Join(r.root.Dir(), "bin", "cli")
	own := homeOf(t, r.transport.specs[0].Env)
	require.Equal(t, []process.Spec{{
		Path: path,
		Args: []string{path, "script.js", "--no-prompt", "issue", "list"},
		Env: []string{
			"GH_HOST=github.com",
			"GH_REPO=a/b",
			"GH_TOKEN=secret-value",
			"HOME=" + own.Home,
			"HTTPS_PROXY=http://proxy",
			"LC_CTYPE=C.UTF-8",
			"NO_COLOR=1",
			"PATH=/dev/null",
			"RUNTIME_ENV=1",
			"TERM=dumb",
			"TMPDIR=" + own.Temp,
			"TZ=UTC",
			"XDG_STATE_HOME=" + own.State,
		},
		Dir:   dir,
		Stdin: true,
	}}, r.transport.specs)
}

// The canonical call of the grammar holds the fixed arguments of contract and
// command; the child gets them exactly once.
func TestFixedArgumentsComeOnce(t *testing.T) {
	t.Parallel()
	cmd, err := name.ParseCommand("issue.list")
	require.NoError(t, err)
	limit, err := name.ParseParameter("limit")
	require.NoError(t, err)
	rel := release(t, "github", "1.0.0", "a")
	rel.Contract.Environment = nil
	rel.Contract.Commands = []argv.Command{{
		Name: cmd, Arguments: []string{"issue", "list"},
		Parameters: []argv.Parameter{{
			Name: limit, Flag: &argv.Flag{Name: "--limit"}, Schemas: []argv.Schema{{Type: argv.TypeInteger}},
		}},
	}}
	r := newRig(t, rel)
	r.reconciled(t)
	d := r.current()[0]
	command, ok := d.Contract.Lookup(cmd)
	require.True(t, ok)
	grammar, err := command.Compile(d.Contract)
	require.NoError(t, err)
	call, err := grammar.Parse([]string{"--limit", "5"})
	require.NoError(t, err)
	p, err := r.Start(t.Context(), route.StartRequest{Identity: d.Identity, Call: call})
	require.NoError(t, err)
	require.NoError(t, p.Close())
	require.Equal(t, []string{"script.js", "--no-prompt", "issue", "list", "--limit=5"}, r.transport.specs[0].Args[1:])
}

func label(t *testing.T, s string) name.Label {
	t.Helper()
	l, err := name.ParseLabel(s)
	require.NoError(t, err)
	return l
}

func TestStartCLIInvalid(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	r.reconciled(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	cases := map[string]func(*StartCLIRequest){
		"relative-directory":    func(q *StartCLIRequest) { q.WorkingDirectory = "." },
		"missing-directory":     func(q *StartCLIRequest) { q.WorkingDirectory = filepath.Join(dir, "missing") },
		"directory-is-a-file":   func(q *StartCLIRequest) { q.WorkingDirectory = file },
		"nul-argument":          func(q *StartCLIRequest) { q.Arguments = []string{"\x00"} },
		"257-arguments":         func(q *StartCLIRequest) { q.Arguments = make([]string, 257) },
		"unlisted-variable":     func(q *StartCLIRequest) { q.Environment = []argv.Variable{{Name: "OTHER", Value: "x"}} },
		"other-case":            func(q *StartCLIRequest) { q.Environment = []argv.Variable{{Name: "gh_repo", Value: "x"}} },
		"listed-but-reserved":   func(q *StartCLIRequest) { q.Environment = []argv.Variable{{Name: "HOME", Value: "x"}} },
		"the-same-twice":        func(q *StartCLIRequest) { q.Environment = []argv.Variable{{Name: "GH_REPO"}, {Name: "GH_REPO"}} },
		"without-release":       func(q *StartCLIRequest) { q.ReleaseDigest = "" },
		"hash-of-another-kind":  func(q *StartCLIRequest) { q.ContractHash = "md5:" + digestOf("c") },
		"identity-of-no-moment": func(q *StartCLIRequest) { q.Generation = route.Generation{} },
	}
	if runtime.GOOS != "windows" {
		link := filepath.Join(dir, "link")
		require.NoError(t, os.Symlink(dir, link))
		cases["directory-is-a-link"] = func(q *StartCLIRequest) { q.WorkingDirectory = link }
	}
	for what, change := range cases {
		q := StartCLIRequest{Identity: r.only(t), WorkingDirectory: dir}
		change(&q)
		_, err := r.StartCLI(t.Context(), q)
		require.ErrorIs(t, err, route.ErrInvalid, what)
	}
	require.Zero(t, r.transport.started())
}

func TestStartCLIUnavailable(t *testing.T) {
	t.Parallel()

	t.Run("changed-bytes", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, release(t, "github", "1.0.0", "a"))
		r.reconciled(t)
		r.fail(r.verifyErr, digestOf("a"), errTamper)
		_, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
		require.ErrorIs(t, err, route.ErrUnavailable)
		require.ErrorIs(t, err, errTamper)
		require.Zero(t, r.transport.started())
		require.Contains(t, r.log.String(), errTamper.Error(), "the owner reads the cause")
		requireNoOperation(t, r)
		r.fail(r.verifyErr, digestOf("a"), nil)
		p, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
		require.NoError(t, err)
		require.NoError(t, p.Close())
	})

	t.Run("transport-fails", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, release(t, "github", "1.0.0", "a"))
		r.reconciled(t)
		r.transport.err = process.ErrBusy
		_, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
		require.ErrorIs(t, err, route.ErrUnavailable)
		require.ErrorIs(t, err, process.ErrBusy)
		requireNoOperation(t, r)
	})

	t.Run("owner-files-are-broken", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, release(t, "github", "1.0.0", "a"))
		account := r.account(t, "github", "work")
		r.reconciled(t)
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(account.Home()), "connection.json"), []byte("{"), 0o600))
		_, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
		require.ErrorIs(t, err, route.ErrUnavailable)
		require.NotErrorIs(t, err, route.ErrInvalid, "the caller did nothing wrong")
		require.Zero(t, r.transport.started())
	})

	t.Run("after-close", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, release(t, "github", "1.0.0", "a"))
		r.reconciled(t)
		id := r.only(t)
		p, err := r.Start(t.Context(), route.StartRequest{Identity: id})
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Zero(t, r.transport.live.Load())
		e, err := p.Wait(t.Context())
		require.NoError(t, err)
		require.True(t, e.Retired)
		require.NoError(t, p.Close(), "its directory is gone already")
		_, err = r.StartCLI(t.Context(), StartCLIRequest{Identity: id, WorkingDirectory: t.TempDir()})
		require.ErrorIs(t, err, route.ErrUnavailable)
		receipts, err := r.Reconcile(t.Context())
		require.ErrorIs(t, err, route.ErrUnavailable)
		require.Equal(t, []string{"github@1.0.0 default failed"}, states(receipts))
		require.NoError(t, r.Close(), "Close is idempotent")
	})

	t.Run("store-cannot-launch", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, release(t, "github", "1.0.0", "a"))
		r.prepare = r.launch
		_, err := r.Reconcile(t.Context())
		require.ErrorIs(t, err, errLaunch)
	})
}

// requireNoOperation waits until no private directory is in use: those that are there
// wait to be used, and hold nothing that an operation left.
func requireNoOperation(t *testing.T, r *rig) {
	t.Helper()
	require.Eventually(t, func() bool { return r.operations.InUse() == 0 }, 30*time.Second, time.Millisecond)
}

// requireGone waits for the end of a private directory.
func requireGone(t *testing.T, dir string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := os.Lstat(dir)
		return errors.Is(err, fs.ErrNotExist)
	}, 30*time.Second, time.Millisecond)
}

// A start that races the retirement of its route never leaves a process.
func TestFenceRacesStartCLI(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 200 {
		content := "ab"[i%2 : i%2+1]
		r.store.set(release(t, "github", "1.0.0", content))
		r.reconciled(t)
		id := r.only(t)
		r.store.set()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				p, err := r.Start(context.Background(), route.StartRequest{Identity: id})
				switch {
				case err == nil:
					_ = p.Close()
				case !errors.Is(err, route.ErrUnavailable) && !errors.Is(err, route.ErrIdentityMismatch):
					t.Errorf("start: %v", err)
				}
			})
		}
		wg.Go(func() { _, _ = r.Reconcile(context.Background()) })
		wg.Wait()
		require.Zero(t, r.transport.live.Load())
	}
	requireNoOperation(t, r)
}

// No secret, argument or variable of a call is in a log or an error, whatever
// fails.
func TestNothingPrivateIsLogged(t *testing.T) {
	t.Parallel()
	const canary = "canary-7f3a9"
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	account := r.account(t, "github", "work")
	declared := connection.DeclaredBy(r.store.releases[0].Manifest)
	require.NoError(t, account.SetSecret(declared, label(t, "token"), "", strings.NewReader(canary)))
	require.NoError(t, account.SetSetting(declared, "PLAIN", canary))
	r.reconciled(t)
	var seen []string
	try := func(env []argv.Variable, args ...string) {
		_, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t), Call: argv.Call{Arguments: args, Environment: env}})
		require.Error(t, err)
		seen = append(seen, err.Error())
	}
	try([]argv.Variable{{Name: "GH_TOKEN", Value: canary}}, canary)
	try([]argv.Variable{{Name: "UNLISTED", Value: canary}}, canary)
	try([]argv.Variable{{Name: canary, Value: canary}}, canary)
	try(nil, canary+"\x00")
	r.fail(r.verifyErr, digestOf("a"), errTamper)
	try(nil, canary)
	r.fail(r.verifyErr, digestOf("a"), nil)
	r.transport.err = errors.New("cannot start")
	try(nil, canary)
	require.NoError(t, os.WriteFile(filepath.Join(r.root.Dir(), "sealed", "values", "github", "work", "token.sealed"), []byte(canary), 0o600))
	try(nil, canary)
	_, err := r.Reconcile(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, r.log.String())
	require.NotContains(t, strings.Join(append(seen, r.log.String()), "\n"), canary)
}

func TestLoginSpec(t *testing.T) {
	t.Parallel()
	rel, without := release(t, "github", "1.0.0", "a"), release(t, "stripe", "1.0.0", "b")
	without.Manifest.Login = nil
	r := newRig(t, rel, without)
	r.reconciled(t)
	query := route.Query{Connector: connectorKey(t, "github"), Version: version(t, "1.0.0")}
	spec, err := r.LoginSpec(query)
	require.NoError(t, err)
	require.Equal(t, []string{"script.js", "auth", "login"}, spec.Args[1:])
	require.Contains(t, spec.Env, "HOME="+spec.Dir)
	require.Contains(t, spec.Env, "TERM=xterm")
	require.True(t, spec.Stdin)
	r.fail(r.verifyErr, digestOf("a"), errTamper)
	_, err = r.LoginSpec(query)
	require.ErrorIs(t, err, errTamper)
	query.Connector = connectorKey(t, "stripe")
	_, err = r.LoginSpec(query)
	require.ErrorIs(t, err, route.ErrInvalid)
	query.Connector = connectorKey(t, "nobody")
	_, err = r.LoginSpec(query)
	require.ErrorIs(t, err, route.ErrNotFound)
	require.Zero(t, r.transport.started())
}

func TestNew(t *testing.T) {
	t.Parallel()
	root, err := connection.Open(filepath.Join(t.TempDir(), "connections"))
	require.NoError(t, err)
	whole := Config{Store: &fakeStore{releases: []install.Release{}}, Transport: &recorder{}, Connections: root}
	for what, spoil := range map[string]func(*Config){
		"store":       func(c *Config) { c.Store = nil },
		"transport":   func(c *Config) { c.Transport = nil },
		"connections": func(c *Config) { c.Connections = nil },
	} {
		c := whole
		spoil(&c)
		_, err := New(c)
		require.Error(t, err, what)
	}
	// Two live hosts on one root do not touch each other.
	a, err := New(whole)
	require.NoError(t, err)
	dir, err := a.operations.Make()
	require.NoError(t, err)
	b, err := New(whole)
	require.NoError(t, err)
	require.DirExists(t, dir)
	require.NoError(t, b.Close())
	require.DirExists(t, dir)
	require.NoError(t, a.Close())
	require.NoDirExists(t, dir)
}

// A native CLI is called by its public name, so that what it prints about itself
// holds no path of this machine; an interpreter by its path.
func TestNameOfTheProgram(t *testing.T) {
	t.Parallel()
	l := &launcher{release: prepared{path: "/store/bin/gh"}, command: "gh"}
	require.Equal(t, "gh", l.called())
	l.release.prefix = []string{"/store/cli.js"}
	require.Equal(t, "/store/bin/gh", l.called())
}
