//go:build unix

package lendtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/gateway/lendtest"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost"
	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/name"
)

// doc: main
// TestMain comes first to what supervises the processes of a real host: it is this
// program, started once more. A product's main function begins in the same way.
func TestMain(m *testing.M) {
	process.Main() // does not return in a supervisor
	if len(os.Args) > 2 && os.Args[1] == "say" {
		fmt.Println(strings.Join(os.Args[2:], " ")) // the Connector of TestRealHost
		os.Exit(4)
	}
	goleak.VerifyTestMain(m)
}

// end doc

const sayManifest = `{
  "schemaVersion": "1", "key": "say", "version": "1.0.0", "displayName": "Say",
  "cli": {
    "command": "say", "kind": "native", "entrypoint": "say", "arguments": ["say"],
    "commands": {"word": {"summary": "say a word", "effect": "read", "arguments": ["it"],
      "parameters": {"word": {"position": 1, "required": true, "pattern": "[a-z]+"}}}}
  }
}`

// doc: real
// realHost is a Connector host with one Connector installed, below dir. close ends it.
func realHost(ctx context.Context, dir, connector string) (host *localhost.Host, close func() error, err error) {
	var closers []func() error
	close = func() (err error) {
		for i := len(closers) - 1; i >= 0; i-- {
			err = errors.Join(err, closers[i]())
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, close())
		}
	}()
	store, err := install.Open(install.Config{Dir: filepath.Join(dir, "connectors")})
	if err != nil {
		return nil, close, err
	}
	closers = append(closers, store.Close)
	if _, err := store.Add(ctx, install.Source{Path: connector}, nil); err != nil {
		return nil, close, err
	}
	root, err := connection.Open(filepath.Join(dir, "connections")) // accounts: secrets, homes
	if err != nil {
		return nil, close, err
	}
	if err := root.Sealed().Create(sealed.Source{Kind: sealed.KeyFile}); err != nil {
		return nil, close, err
	}
	transport := process.New(process.Config{})
	closers = append(closers, transport.Close)
	host, err = localhost.New(localhost.Config{Store: store, Transport: transport, Connections: root})
	if err != nil {
		return nil, close, err
	}
	closers = append(closers, host.Close)
	_, err = host.Reconcile(ctx) // publishes what is installed
	return host, close, err
}

// end doc

// A real host runs a real process, with the same admission in front of it.
func TestRealHost(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	source := filepath.Join(dir, "source")
	require.NoError(t, os.Mkdir(source, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(source, "connector-manifest.json"), []byte(sayManifest), 0o600))
	self, err := os.Executable()
	require.NoError(t, err)
	program, err := os.ReadFile(self)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(source, "say"), program, 0o700))
	host, end, err := realHost(t.Context(), dir, source)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, end()) })

	// doc: runtime
	g := lendtest.Config{
		Runtime: host,
		Grants: []lease.Grant{{
			Connector: must(name.ParseConnectorKey("say")), Version: must(name.ParseVersion("1.0.0")),
			Commands: []name.Command{must(name.ParseCommand("word"))},
		}},
	}.New(t)
	out, err := g.Client.Command(t.Context(), "say", "word", "hello").Output()
	// end doc
	require.ErrorContains(t, err, "status 4")
	require.Equal(t, "it hello\n", string(out))
}
