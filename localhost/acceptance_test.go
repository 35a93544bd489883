//go:build unix

package localhost

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
)

// fieldsOf lists the fields of a struct, those of embedded ones by their own names.
func fieldsOf(r reflect.Type) (all []string) {
	for f := range r.Fields() {
		if f.Anonymous {
			all = append(all, fieldsOf(f.Type)...)
			continue
		}
		all = append(all, f.Name)
	}
	slices.Sort(all)
	return all
}

// StartCLI inputs: no process spec from the caller. What a request can say is the
// identity, a directory, arguments and variables of the contract; there is no field for
// an executable, an environment, a state directory or a root of artifacts. Nor has the
// host another way to start something than those that pin an identity.
func TestStartCLIInputsHaveNoProcessSpec(t *testing.T) {
	t.Parallel()
	identity := []string{"Connection", "Connector", "ContractHash", "Generation", "ReleaseDigest", "Version"}
	require.Equal(t, identity, fieldsOf(reflect.TypeFor[route.Identity]()))
	want := append(slices.Clone(identity), "Arguments", "Environment", "Limits", "Stdin", "WorkingDirectory")
	slices.Sort(want)
	require.Equal(t, want, fieldsOf(reflect.TypeFor[StartCLIRequest]()))
	require.Equal(t, []string{"Memory", "Processes"}, fieldsOf(reflect.TypeFor[route.Limits]()))
	require.Equal(t, []string{"Call", "Identity", "Limits", "Place", "Stdin", "Workspace"}, fieldsOf(reflect.TypeFor[route.StartRequest]()))
}

// Public surface: no generic invoke. What of the host gives a process takes a pinned
// identity, and nothing of it takes a program or a command line.
func TestPublicSurfaceHasNoGenericInvoke(t *testing.T) {
	t.Parallel()
	starts := []reflect.Type{reflect.TypeFor[StartCLIRequest](), reflect.TypeFor[route.StartRequest]()}
	runs := []reflect.Type{reflect.TypeFor[route.Process](), reflect.TypeFor[*CLIConnection]()}
	found := 0
	for m := range reflect.TypeFor[*Host]().Methods() {
		gives := slices.ContainsFunc(slices.Collect(m.Type.Outs()), func(r reflect.Type) bool { return slices.Contains(runs, r) })
		for in := range m.Type.Ins() {
			require.NotEqual(t, reflect.TypeFor[process.Spec](), in, m.Name)
			require.NotEqual(t, reflect.TypeFor[string](), in, m.Name)
			require.NotEqual(t, reflect.TypeFor[[]string](), in, m.Name)
		}
		if gives {
			found++
			require.Contains(t, starts, m.Type.In(2), m.Name)
		}
	}
	require.Equal(t, 2, found)
}

// StartCLI cwd: absolute, for this one invocation; a relative file of the arguments is
// found from there.
func TestStartCLIWorkingDirectoryOfEachInvocation(t *testing.T) {
	t.Parallel()
	h := newRealHost(t)
	d := h.current()[0]
	for n := range 2 {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		require.NoError(t, err)
		text := fmt.Sprint("of directory ", n)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte(text), 0o600))
		c, err := h.StartCLI(t.Context(), StartCLIRequest{
			Identity: d.Identity, WorkingDirectory: dir, Arguments: append(slices.Clone(d.Contract.Arguments), "read", "file"),
		})
		require.NoError(t, err)
		out, err := io.ReadAll(c.Stdout())
		require.NoError(t, err)
		e, err := c.Wait(t.Context())
		require.NoError(t, err)
		require.Zero(t, e.Code)
		require.Equal(t, text, string(out))
		require.NoError(t, c.Close())
		require.DirExists(t, dir, "it is the caller's")
	}
	for _, bad := range []string{"", ".", "relative", "/nul\x00", filepath.Join(t.TempDir(), "missing")} {
		_, err := h.StartCLI(t.Context(), StartCLIRequest{Identity: d.Identity, WorkingDirectory: bad, Arguments: d.Contract.Arguments})
		require.ErrorIs(t, err, route.ErrInvalid, "%q", bad)
	}
}

// ReleaseInstaller: success never publishes a route; reconciling does.
func TestReleaseInstallerSuccessPublishesNoRoute(t *testing.T) {
	t.Parallel()
	h := newRealHost(t)
	source := filepath.Join(filepath.Dir(h.installed), "source")
	at := filepath.Join(source, "connector-manifest.json")
	b, err := os.ReadFile(at)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at, []byte(strings.Replace(string(b), `"1.0.0"`, `"1.1.0"`, 1)), 0o600))
	before, _ := h.Routes().Snapshot()
	_, err = h.store.Add(t.Context(), install.Source{Path: source}, nil)
	require.NoError(t, err)
	after, _ := h.Routes().Snapshot()
	require.Equal(t, before, after)
	require.Len(t, h.current(), 1)
	_, err = h.Reconcile(t.Context())
	require.NoError(t, err)
	require.Len(t, h.current(), 2)
}

// Connector private state: what a CLI keeps is in directories of its connection that
// nobody else can enter, two connections have nothing in common, and no directory of
// programs is on its path.
func TestConnectorPrivateStateIsIsolated(t *testing.T) {
	t.Parallel()
	h := newRealHost(t)
	other, err := h.cfg.Connections.Create(connectorKey(t, "fixture"), connectionID(t, "work"))
	require.NoError(t, err)
	for _, a := range []string{h.account.Home(), other.Home()} {
		require.NoError(t, os.WriteFile(filepath.Join(a, "login"), []byte(a), 0o600))
	}
	_, err = h.Reconcile(t.Context())
	require.NoError(t, err)
	all := h.current()
	require.Len(t, all, 2)
	var homes []string
	for _, d := range all {
		p, err := h.Start(t.Context(), startOf(d, "show"))
		require.NoError(t, err)
		out, err := io.ReadAll(p.Stdout())
		require.NoError(t, err)
		own := homeOf(t, strings.Split(string(out), "\n"))
		require.Contains(t, string(out), "\nPATH=/dev/null\n")
		for _, dir := range []string{own.Home, own.State, own.Temp} {
			require.True(t, strings.HasPrefix(dir, h.cfg.Connections.Dir()+string(filepath.Separator)), dir)
			require.NotContains(t, homes, dir)
			homes = append(homes, dir)
		}
		_, err = p.Wait(t.Context())
		require.NoError(t, err)
		require.NoError(t, p.Close())
	}
	for _, c := range []string{h.account.Home(), other.Home()} {
		info, err := os.Stat(c)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
		b, err := os.ReadFile(filepath.Join(c, "login"))
		require.NoError(t, err)
		require.Equal(t, c, string(b))
	}
}

func startOf(d route.Descriptor, args ...string) (r route.StartRequest) {
	r.Identity = d.Identity
	r.Call.Arguments = append(slices.Clone(d.Contract.Arguments), args...)
	return r
}
