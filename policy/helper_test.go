package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

var update = flag.Bool("update", false, "rewrite golden files")

// The peers and issuers of the tests.
const (
	ownerID    = "12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4"
	deskID     = "12D3KooWQ3gCYnQhxtFbqsbfbZmuZcQGzjpCCExt3ViccUb5X4dQ"
	mariaID    = "12D3KooWH2Zoo9X8rLtZaVANHvjjDFSR64ye2cQWNeYtvBZiaB2j"
	agentID    = "12D3KooWJQ6BCcT8EaUwUoGUWcdRnYQpDRcD1YeB7chTMjQqrD71"
	strangerID = "12D3KooWKA9MX4vMqZocuA2swGUhZANTZJroEwgNHZEFrfvPhqx6"
)

var errNoRoute = errors.New("no such route")

// contractForm is a contract as the test files spell it.
type contractForm struct {
	Command     string                      `json:"command"`
	Arguments   []string                    `json:"arguments"`
	Environment []string                    `json:"environment"`
	Timeout     string                      `json:"timeout"`
	Commands    map[string]argv.Declaration `json:"commands"`
}

func (f contractForm) contract(t testing.TB) argv.Contract {
	t.Helper()
	c := argv.Contract{Command: f.Command, Arguments: f.Arguments, Environment: f.Environment}
	if f.Timeout != "" {
		d, err := time.ParseDuration(f.Timeout)
		require.NoError(t, err)
		c.Timeout = d
	}
	for n, d := range f.Commands {
		command, err := d.Command(must(name.ParseCommand(n)))
		require.NoError(t, err, n)
		c.Commands = append(c.Commands, command)
	}
	return c
}

// fakeContracts has the contracts of "key@version" and "key@version#connection".
type fakeContracts map[string]argv.Contract

func (f fakeContracts) Contract(key name.ConnectorKey, version name.Version, connection name.ConnectionID) (argv.Contract, string, error) {
	id := key.String() + "@" + version.String()
	if !connection.IsZero() {
		id += "#" + connection.String()
	}
	c, ok := f[id]
	if !ok {
		return argv.Contract{}, "", errNoRoute
	}
	b, err := argv.CanonicalJSON(c.Semantics())
	if err != nil {
		return argv.Contract{}, "", err
	}
	sum := sha256.Sum256(b)
	return c, "sha256:" + hex.EncodeToString(sum[:]), nil
}

func readContracts(t testing.TB, data []byte) fakeContracts {
	t.Helper()
	out := fakeContracts{}
	if strings.TrimSpace(string(data)) == "" {
		return out
	}
	doc, err := strict.Parse("contracts.yaml", data, MaxFile)
	require.NoError(t, err)
	require.NoError(t, doc.Err())
	var forms map[string]contractForm
	require.NoError(t, doc.Root.Decode(&forms))
	for id, f := range forms {
		out[id] = f.contract(t)
	}
	return out
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func mustParse(t testing.TB, text string) *Policy {
	t.Helper()
	p, err := Parse("policy.yaml", []byte(text))
	require.NoError(t, err)
	return p
}

// archives returns the txtar files of a directory, which must not be empty.
func archives(t testing.TB, dir string) map[string]map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	out := map[string]map[string][]byte{}
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		require.NoError(t, err)
		files := map[string][]byte{}
		for _, f := range a.Files {
			require.NotContains(t, files, f.Name, path)
			files[f.Name] = f.Data
		}
		out[strings.TrimSuffix(filepath.Base(path), ".txtar")] = files
	}
	return out
}

// golden compares text with a file, or writes it with -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// asked is a request as test files spell it.
type asked struct {
	Name   string              `json:"name"`
	Issuer string              `json:"issuer"`
	Peer   string              `json:"peer"`
	Run    []string            `json:"run"`
	At     string              `json:"version"`
	Pins   map[string][]string `json:"pins"`
	Stdin  bool                `json:"stdin"`
	Now    time.Time           `json:"now"`

	Want       string   `json:"want"`
	Rule       string   `json:"rule"`
	Code       string   `json:"code"`
	Argv       []string `json:"argv"`
	Connection string   `json:"connection"`
	Workspace  string   `json:"workspace"`
	Stdout     int64    `json:"stdout"`
	In         int64    `json:"in"`
	Run_       string   `json:"run_time"`
}

func (a asked) request(t testing.TB, p *Policy) Request {
	t.Helper()
	r := Request{Stdin: a.Stdin, Now: a.Now, Version: must(name.ParseVersion(a.At))}
	if r.Now.IsZero() {
		r.Now = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	}
	for _, i := range p.file.Issuers {
		if i.Name.String() == a.Issuer {
			r.Issuer = i.ID
		}
	}
	if r.Issuer.IsZero() {
		r.Issuer = must(name.ParsePeerID(a.Issuer))
	}
	r.Peer = p.file.Peers[must(name.ParseLabel(a.Peer))]
	if r.Peer.IsZero() {
		r.Peer = must(name.ParsePeerID(a.Peer))
	}
	require.GreaterOrEqual(t, len(a.Run), 2)
	r.Connector, r.Command = must(name.ParseConnectorKey(a.Run[0])), must(name.ParseCommand(a.Run[1]))
	r.Arguments = a.Run[2:]
	for k, v := range a.Pins {
		if r.Pins == nil {
			r.Pins = map[name.Parameter][]string{}
		}
		r.Pins[must(name.ParseParameter(k))] = v
	}
	return r
}

func readAsked(t testing.TB, data []byte) (out []asked) {
	t.Helper()
	for _, line := range strings.Split(string(data), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var a asked
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		require.NoError(t, d.Decode(&a), line)
		out = append(out, a)
	}
	require.NotEmpty(t, out)
	return out
}

var (
	someDay   = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	parsePeer = name.ParsePeerID
)

// head begins the small policies of the tests.
const head = `policy: 1
issuers:
  owner: {id: ` + ownerID + `, connectors: any}
peers:
  maria-laptop: ` + mariaID + `
  build-agent: ` + agentID + `
`
