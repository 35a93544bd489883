package issued

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

var testTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func peer(n byte) name.PeerID {
	key := make([]byte, 32)
	key[0] = n
	return must(name.PeerIDFromKey(key))
}

func testLease(n byte) lease.Lease {
	return lease.Lease{
		ID: lease.ID{n}, Issuer: peer(1), Holder: peer(2), Gateway: peer(3), Invocation: must(name.ParseInvocationID("run-1")),
		Grants: []lease.Grant{{
			Connector: must(name.ParseConnectorKey("github")), Version: must(name.ParseVersion("1.0.0")),
			Commands: []name.Command{must(name.ParseCommand("issue.list"))},
			Pins:     map[name.Parameter][]string{must(name.ParseParameter("repo")): {"secret/place"}}, Finish: true,
		}},
		IssuedAt: testTime.Add(time.Duration(n) * time.Second), NotAfter: testTime.Add(time.Hour), MaxOperations: 7, Purpose: "a test",
	}
}

func TestKeepAndList(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "issued")
	require.Empty(t, must(List(dir, testTime)))
	one, two := testLease(1), testLease(2)
	require.NoError(t, Keep(dir, Of(&one, one.Issuer), testTime))
	require.NoError(t, Keep(dir, Of(&two, peer(9)), testTime))
	require.NoError(t, Keep(dir, Of(&two, peer(9)), testTime), "again")
	found := must(List(dir, testTime))
	require.Equal(t, []Lease{Of(&two, peer(9)), Of(&one, one.Issuer)}, found, "the newest first")
	require.Equal(t, lease.Subject{Lease: one.ID, Invocation: one.Invocation, Holder: peer(2), Issuer: peer(1), IssuedAt: one.IssuedAt}, found[1].Subject())
	for _, e := range must(os.ReadDir(dir)) {
		info := must(e.Info())
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		require.NotContains(t, string(must(os.ReadFile(filepath.Join(dir, e.Name())))), "secret/place", "no pinned value")
	}
	require.NoError(t, Forget(dir, two.ID))
	require.NoError(t, Forget(dir, two.ID))
	require.Len(t, must(List(dir, testTime)), 1)
}

func TestForgetsAMonthAfterTheEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := testLease(1)
	require.NoError(t, Keep(dir, Of(&l, l.Issuer), testTime))
	end := l.NotAfter.Add(KeepFor)
	require.Len(t, must(List(dir, end)), 1)
	require.Empty(t, must(List(dir, end.Add(time.Millisecond))))
	require.Empty(t, must(os.ReadDir(dir)))
}

// One file that is not readable hides no other, and is an error.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	good := testLease(1)
	whole := must(json.Marshal(Of(&good, good.Issuer)))
	for label, text := range map[string]string{
		"empty": "", "garbage": "{", "other-lease": string(whole), "version": strings.Replace(string(whole), `"schemaVersion":1`, `"schemaVersion":2`, 1),
		"name": strings.Replace(strings.ReplaceAll(string(whole), good.ID.String(), lease.ID{2}.String()), "run-1", "run 1", 1),
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, Keep(dir, Of(&good, good.Issuer), testTime))
			file := filepath.Join(dir, lease.ID{2}.String()+suffix)
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, ".new-1"), nil, 0o600))
			found, err := List(dir, testTime)
			require.ErrorContains(t, err, file)
			require.Len(t, found, 1)
			other := testLease(3)
			require.NoError(t, Keep(dir, Of(&other, other.Issuer), testTime))
		})
	}
	dir := t.TempDir()
	require.NoError(t, Keep(dir, Of(&good, good.Issuer), testTime))
	require.NoError(t, os.Chmod(filepath.Join(dir, good.ID.String()+suffix), 0o644))
	_, err := List(dir, testTime)
	require.Error(t, err, "it is private")
}
