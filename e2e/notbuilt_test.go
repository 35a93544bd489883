//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
)

// What lend does not do yet is refused where it would be asked for: an owner who writes
// it down is told, and nothing is taken for something weaker.

// TestApprovalsAreRefused: no key of a policy asks somebody, and none is passed over.
func TestApprovalsAreRefused(t *testing.T) {
	t.Parallel()
	w, err := makeWorld(binDir(t), t.TempDir(), os.Environ(), "policy: 1\n")
	require.NoError(t, err)
	const rule = `policy: 1
issuers:
  owner: {id: ${OWNER_KEY}, connectors: [fx]}
peers:
  caller: ${CALLER_ID}
commands:
  fx: {env: {effect: read, arguments: [env]}}
allow:
  - name: x
    to: [caller]
    connector: fx
    version: "1.0.0"
    commands: {env: {}}
`
	require.NoError(t, w.setPolicy(rule))
	_, err = w.lend(w.vars["OWNER"], "policy", "check")
	require.NoError(t, err, "without the word it is a policy")
	for _, word := range []string{"approve: true", "approval: ask", "ask: owner", "confirm: true", "require_approval: true", "approvers: [owner]"} {
		for place, text := range map[string]string{
			"file": rule + word + "\n", "rule": rule + "    " + word + "\n",
			"command": strings.Replace(rule, "commands: {env: {}}", "commands: {env: {"+word+"}}", 1),
			"limits":  rule + "    limits: {" + word + "}\n",
		} {
			require.NoError(t, w.setPolicy(text))
			for _, command := range [][]string{{"policy", "check"}, {"serve", "--listen", "/ip4/127.0.0.1/tcp/0"}} {
				_, err := w.lend(w.vars["OWNER"], command...)
				require.ErrorContains(t, err, strings.Split(word, ":")[0], "%s in the %s", word, place)
			}
		}
	}
}

// TestShimsCarryNoAuthority: lend-shim under the name of a CLI starts nothing and asks
// nobody without a session, whatever else its environment says.
func TestShimsCarryNoAuthority(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, cli := range []string{"gh", "fx", "stripe"} {
		link := filepath.Join(dir, cli)
		require.NoError(t, os.Symlink(filepath.Join(binDir(t), "lend-shim"), link))
		cmd := exec.Command(link, "issue", "list")
		cmd.Env = append(os.Environ(), "LEND_DIR="+dir, "LEND_LEASE_FILE="+filepath.Join(dir, "x.lease"), "AUTHORITY=Owner2", "LEND_AUTHORITY=Owner2")
		out, err := cmd.CombinedOutput()
		require.ErrorContains(t, err, "exit status 125")
		require.Contains(t, string(out), "LEND_SESSION names none")
	}
}

// TestAuthorityCannotBeChosen: there is one authority, the owner's; another is no flag,
// no variable and no lease.
func TestAuthorityCannotBeChosen(t *testing.T) {
	s := serve(t)
	file := s.leaseFile(t, s.file)
	before := s.starts()
	for _, args := range [][]string{{"run", "--authority", "Owner2", "fx", "env"}, {"run", "--as", "Owner2", "fx", "env"}} {
		_, err := s.lend(s.vars["CALLER"], args...)
		require.ErrorContains(t, err, "exit status 125") // not sent
	}
	require.Equal(t, before, s.starts())
	s.env = append(s.env, "AUTHORITY=Owner2", "LEND_AUTHORITY=Owner2")
	_, err := s.lend(s.vars["CALLER"], "run", "--lease", file, "fx", "exit", "0")
	require.NoError(t, err, "what lend does not know changes nothing")
	require.Equal(t, before+1, s.starts())
	_, err = s.lend(s.vars["OWNER"], "lease", "issue", "--to", "caller", "--authority", "Owner2", "fx", "env", "--out", "-")
	require.ErrorContains(t, err, "unknown flag")
}

// TestRelaysAreRefused: no gateway listens through a relay, and no caller dials one.
func TestRelaysAreRefused(t *testing.T) {
	s := serve(t)
	relayed := s.file
	relay := "/ip4/127.0.0.1/tcp/1/p2p/" + s.vars["OTHER_ID"] + "/p2p-circuit"
	relayed.Addresses = []string{relay + "/p2p/" + s.vars["OWNER_ID"]}
	if text, err := lease.Armor(relayed.Chain, relayed.Addresses, lease.AddressRule{AllowLocal: true}); err == nil {
		file := filepath.Join(t.TempDir(), "relayed.lease")
		require.NoError(t, os.WriteFile(file, text, 0o600))
		code, out, errs := s.call(file, "", "env")
		require.NotZero(t, code, errs)
		require.Empty(t, out)
	}
	require.Zero(t, s.starts())
	_, err := s.lend(s.vars["OTHER"], "serve", "--listen", relay)
	require.Error(t, err)
}

// leaseFile writes a lease file.
func (s *served) leaseFile(t *testing.T, f lease.File) string {
	t.Helper()
	text, err := lease.Armor(f.Chain, f.Addresses, lease.AddressRule{AllowLocal: true})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "a.lease")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return file
}
