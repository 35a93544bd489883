package policy

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy/file"
)

// Every file of testdata/refused is refused with the positions and texts of its
// golden file.
func TestRefusedFiles(t *testing.T) {
	paths, err := filepath.Glob("testdata/refused/*.yaml")
	require.NoError(t, err)
	require.Greater(t, len(paths), 60)
	for _, path := range paths {
		title := strings.TrimSuffix(filepath.Base(path), ".yaml")
		t.Run(title, func(t *testing.T) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			p, err := Parse(title+".yaml", data)
			require.Error(t, err)
			require.Nil(t, p)
			var problems Problems
			require.ErrorAs(t, err, &problems)
			require.NotEmpty(t, problems)
			require.LessOrEqual(t, len(problems), 20)
			for _, one := range problems {
				require.Positive(t, one.Position.Line)
				require.Positive(t, one.Position.Column)
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".golden", err.Error()+"\n")
		})
	}
}

func TestParseBounds(t *testing.T) {
	_, err := Parse("p", bytes.Repeat([]byte("#"), MaxFile+1))
	require.ErrorContains(t, err, "more than 1048576 bytes")
	for title, text := range map[string]string{
		"brackets":  strings.Repeat("[", 1<<17),
		"braces":    strings.Repeat("{a: ", 1<<16),
		"entries":   strings.Repeat("- ", 1<<17),
		"questions": strings.Repeat("? ", 1<<17),
		"anchors":   strings.Repeat("&a ", 1<<16),
		"tags":      strings.Repeat("!a ", 1<<16),
		"colons":    "a" + strings.Repeat(": a", 1<<16),
		"flow":      "[" + strings.Repeat("a,", 1<<17) + "]",
		"steps":     steps(1000),
		"quotes":    strings.Repeat("'", 1<<19+1),
	} {
		t.Run(title, func(t *testing.T) {
			_, err := Parse("p", []byte(text))
			require.Error(t, err)
			require.Less(t, len(err.Error()), 1<<16)
		})
	}
}

// steps nests a map by indentation.
func steps(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func TestNilPolicyDenies(t *testing.T) {
	var p *Policy
	require.Equal(t, AdmitNone, p.Admission(must(parsePeer(mariaID))))
	_, ok := p.Issuer(must(parsePeer(ownerID)))
	require.False(t, ok)
	require.False(t, p.Decide(Request{}, fakeContracts{}).Allowed)
	require.Nil(t, p.Freeze(must(parsePeer(ownerID)), must(parsePeer(mariaID)), someDay, []Target{{}}, fakeContracts{}))
	require.False(t, p.DecideWithin(nil, Request{}, fakeContracts{}).Allowed)
	require.False(t, p.Explain(nil, Request{}, fakeContracts{}).Allowed)
}

func TestAdmission(t *testing.T) {
	named := mustParse(t, head)
	require.Equal(t, AdmitNamed, named.Admission(must(parsePeer(mariaID))))
	require.Equal(t, AdmitNone, named.Admission(must(parsePeer(strangerID))))
	strangers := mustParse(t, strings.Replace(head, "connectors: any", "connectors: any, holders: any", 1))
	require.Equal(t, AdmitNamed, strangers.Admission(must(parsePeer(mariaID))))
	require.Equal(t, AdmitStranger, strangers.Admission(must(parsePeer(strangerID))))
	i, ok := strangers.Issuer(must(parsePeer(ownerID)))
	require.True(t, ok)
	require.True(t, i.HoldersAny)
	require.True(t, i.MayName(must(parsePeer(strangerID))))
	require.Equal(t, "1h", file.ShowDuration(i.MaxLife))
	require.Zero(t, i.MaxDepth, "nobody passes a lease on unless the file says so")
	deep, _ := mustParse(t, strings.Replace(head, "connectors: any", "connectors: any, max_depth: 2", 1)).Issuer(must(parsePeer(ownerID)))
	require.Equal(t, 2, deep.MaxDepth)
	_, ok = strangers.Issuer(must(parsePeer(mariaID)))
	require.False(t, ok, "a peer is no issuer")
}

func TestLimitsOfTheGateway(t *testing.T) {
	require.Equal(t, Limits{
		OperationsPerPeer: 32, Operations: 128, StartsPerMinute: 600, Denials: 3,
		Stdin: Unlimited, Stdout: 64 << 20, Stderr: 16 << 20, Detached: time.Minute, Arguments: 256, ArgumentBytes: 256 << 10,
	}, mustParse(t, head).Limits())
	l := mustParse(t, head+"limits: {operations: 4, operations_per_peer: 4, starts_per_minute: 7, denials: 20, stdin: 3B, stdout: unlimited, stderr: 9999GiB, run: 1h30m, on_disconnect: kill, processes: 12, memory: 64MiB, arguments: 9, argument_bytes: 1KiB}\n").Limits()
	require.Equal(t, "1h30m", file.ShowDuration(l.Run))
	l.Run = 0
	require.Equal(t, Limits{
		OperationsPerPeer: 4, Operations: 4, StartsPerMinute: 7, Denials: 20,
		Stdin: 3, Stdout: Unlimited, Stderr: 9999 << 30, Detached: Kill, Processes: 12, Memory: 64 << 20, Arguments: 9, ArgumentBytes: 1 << 10,
	}, l)
	for text, perPeer := range map[string]int{"operations: 1": 1, "operations: 31": 31, "operations: 500": 32, "operations: 500, operations_per_peer: 400": 400} {
		require.Equal(t, perPeer, mustParse(t, head+"limits: {"+text+"}\n").Limits().OperationsPerPeer, text)
	}
}

func TestSurveysOfTheFile(t *testing.T) {
	p := mustParse(t, head+"workspaces: {b: {path: /srv/b}, a: {path: /srv/a b}}\n")
	ws := p.Workspaces()
	require.Len(t, ws, 2)
	require.Equal(t, "/srv/a b", ws[0].Path)
	require.Len(t, p.Peers(), 2)
	require.Len(t, p.Issuers(), 1)
	require.Len(t, p.Digest(), 64)
	require.NotEqual(t, p.Digest(), mustParse(t, head).Digest())
}

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/refused/*.yaml", "testdata/policies/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(f, err)
		require.NotEmpty(f, paths)
		for _, path := range paths {
			data, err := os.ReadFile(path)
			require.NoError(f, err)
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("fuzz.yaml", data)
		if err != nil {
			var problems Problems
			if !errors.As(err, &problems) || len(problems) == 0 || len(problems) > 20 || p != nil {
				t.Fatalf("not a refusal: %v", err)
			}
			if len(err.Error()) > 1<<16 {
				t.Fatal("a refusal without bound")
			}
			return
		}
		p.Lint(nil)
		p.Access(nil)
		p.RunTests(fakeContracts{})
	})
}
