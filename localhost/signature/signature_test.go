package signature

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lendcli/lend/localhost/internal/private"
	"github.com/lendcli/lend/protocol/name"
	"github.com/stretchr/testify/require"
)

func subject(tb testing.TB, key, version, digest string) Subject {
	tb.Helper()
	k, err := name.ParseConnectorKey(key)
	require.NoError(tb, err)
	v, err := name.ParseVersion(version)
	require.NoError(tb, err)
	return Subject{k, v, digest}
}

func printer(tb testing.TB) Subject {
	tb.Helper()
	return subject(tb, "printer", "1.2.3", strings.Repeat("ab", 32))
}

// publisher makes a key and returns its file and the public part.
func publisher(tb testing.TB, n string) (file, public string) {
	tb.Helper()
	file = filepath.Join(tb.TempDir(), "key")
	public, err := NewKey(file, n)
	require.NoError(tb, err)
	return file, public
}

func sign(tb testing.TB, file string, s Subject, before []byte) []byte {
	tb.Helper()
	sig, err := Sign(file, s, before)
	require.NoError(tb, err)
	return sig
}

func TestSignAndCheck(t *testing.T) {
	t.Parallel()
	s := printer(t)
	file, public := publisher(t, "example.com/press")
	info, err := os.Stat(file)
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	_, err = NewKey(file, "again")
	require.ErrorIs(t, err, os.ErrExist, "no key is written over another")
	sig := sign(t, file, s, nil)
	require.True(t, strings.HasPrefix(string(sig), "lend connector release v1\nprinter 1.2.3\n"+s.Digest+"\n\n— example.com/press "))
	require.Equal(t, sig, sign(t, file, s, sig), "signing again changes nothing")

	id := Publisher{Key: public}.ID()
	require.Regexp(t, `^example\.com/press\+[0-9a-f]{8}$`, id)
	trust := &Trust{Publishers: []Publisher{{Key: public}}}
	for _, t2 := range []*Trust{trust, {Publishers: trust.Publishers, RequireAll: true}, {Publishers: trust.Publishers, Require: []string{"printer"}}} {
		by, err := t2.Check(s, sig)
		require.NoError(t, err)
		require.Equal(t, []Signer{{id, true}}, by)
	}

	// A second signature stands beside the first; one of another release does not.
	file2, public2 := publisher(t, "other.example")
	both := sign(t, file2, s, sig)
	by, err := trust.Check(s, both)
	require.NoError(t, err)
	require.Equal(t, []Signer{{id, true}, {Publisher{Key: public2}.ID(), false}}, by)
	newer := subject(t, "printer", "1.2.4", s.Digest)
	by, err = (&Trust{}).Check(newer, sign(t, file2, newer, both))
	require.NoError(t, err)
	require.Len(t, by, 1)
}

// A signature is optional, and what the owner requires is not: absent, unknown and
// wrong are each refused under a name of their own.
func TestRequiredSignatures(t *testing.T) {
	t.Parallel()
	s := printer(t)
	file, public := publisher(t, "press")
	strange, _ := publisher(t, "stranger")
	sameName, _ := publisher(t, "press")
	good, foreign, impostor := sign(t, file, s, nil), sign(t, strange, s, nil), sign(t, sameName, s, nil)
	known := []Publisher{{Key: public}}
	scoped := []Publisher{{Key: public, Connectors: []string{"scanner"}}}
	for _, c := range []struct {
		name  string
		trust Trust
		sig   []byte
		want  error
		by    int
	}{
		{"nothing-required-unsigned", Trust{}, nil, nil, 0},
		{"nothing-required-unknown", Trust{}, good, nil, 1},
		{"known-and-foreign", Trust{Publishers: known}, foreign, nil, 1},
		{"required-unsigned", Trust{Publishers: known, Require: []string{"printer"}}, nil, ErrUnsigned, 0},
		{"required-all-unsigned", Trust{Publishers: known, RequireAll: true}, nil, ErrUnsigned, 0},
		{"required-empty-file", Trust{Publishers: known, RequireAll: true}, []byte{}, ErrInvalid, 0},
		{"required-of-another", Trust{Publishers: known, Require: []string{"scanner"}}, nil, nil, 0},
		{"required-unknown", Trust{Publishers: known, RequireAll: true}, foreign, ErrUntrusted, 0},
		{"required-same-name", Trust{Publishers: known, RequireAll: true}, impostor, ErrUntrusted, 0},
		{"required-nobody-trusted", Trust{RequireAll: true}, good, ErrUntrusted, 0},
		{"required-trusted-for-another", Trust{Publishers: scoped, Require: []string{"printer"}}, good, ErrUntrusted, 0},
		{"trusted-for-another", Trust{Publishers: scoped}, good, nil, 1},
		{"required-good", Trust{Publishers: known, RequireAll: true}, good, nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			by, err := c.trust.Check(s, c.sig)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
				require.Nil(t, by)
				return
			}
			require.NoError(t, err)
			require.Len(t, by, c.by)
			for _, one := range by {
				require.Equal(t, c.name == "required-good", one.Trusted)
			}
		})
	}
}

// A signature that is there and is not of this release is refused by everybody, also by
// who requires none.
func TestWrongSignatures(t *testing.T) {
	t.Parallel()
	s := printer(t)
	file, public := publisher(t, "press")
	good := string(sign(t, file, s, nil))
	line := good[strings.Index(good, "— "):]
	broken := func() string { // a signature of a known key that does not hold
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]))
		require.NoError(t, err)
		raw[len(raw)-1] ^= 1
		return strings.TrimSuffix(good, line) + "— press " + base64.StdEncoding.EncodeToString(raw) + "\n"
	}()
	for _, c := range []struct {
		name, sig string
		anybody   bool // refused also by who does not know the key
	}{
		{"bit-of-the-signature", broken, false},
		{"digest", strings.Replace(good, "abab", "abac", 1), true},
		{"version", strings.Replace(good, "1.2.3", "1.2.4", 1), true},
		{"key", strings.Replace(good, "printer", "scanner", 1), true},
		{"domain", strings.Replace(good, "release v1", "release v2", 1), true},
		{"more-text", "more\n" + good, true},
		{"no-blank-line", strings.Replace(good, "\n\n", "\n", 1), true},
		{"no-signature", strings.TrimSuffix(good, line), true},
		{"no-last-newline", strings.TrimSuffix(good, "\n"), true},
		{"crlf", strings.ReplaceAll(good, "\n", "\r\n"), true},
		{"control", strings.Replace(good, "press", "pr\x1bess", 1), true},
		{"not-utf-8", good + "— press \xff\n", true},
		{"trailing", good + "x", true},
		{"text", "signed by press, honestly", true},
		{"empty", "", true},
		{"pgp", "\x99\x01\x0d\x04", true},
		{"short", "— press AAAA\n", true},
		{"large", good + strings.Repeat(line, MaxBytes/len(line)+1), true},
		{"large-signature", good + "— x " + base64.StdEncoding.EncodeToString(make([]byte, MaxBytes)) + "\n", true},
		{"many", good + strings.Repeat(line, 101), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.NotEqual(t, good, c.sig)
			_, err := (&Trust{Publishers: []Publisher{{Key: public}}}).Check(s, []byte(c.sig))
			require.ErrorIs(t, err, ErrInvalid)
			_, err = (&Trust{}).Check(s, []byte(c.sig))
			if c.anybody {
				require.ErrorIs(t, err, ErrInvalid)
			} else {
				require.NoError(t, err)
			}
		})
	}
	for _, bad := range []Subject{{}, subject(t, "printer", "1.2.3", ""), subject(t, "printer", "1.2.3", strings.Repeat("AB", 32)), subject(t, "printer", "1.2.3", strings.Repeat("ab", 33))} {
		_, err := (&Trust{}).Check(bad, nil)
		require.Error(t, err)
		_, err = Sign(file, bad, nil)
		require.Error(t, err)
	}
}

// Every byte of a note counts, to who knows the key.
func TestEveryByteCounts(t *testing.T) {
	t.Parallel()
	s := printer(t)
	file, public := publisher(t, "press")
	good := sign(t, file, s, nil)
	trust := &Trust{Publishers: []Publisher{{Key: public}}, RequireAll: true}
	_, err := trust.Check(s, good)
	require.NoError(t, err)
	for i := range good {
		others := []byte{good[i] ^ 1, good[i] ^ 0x20}
		if i > len(good)-6 { // where base64 has bits to spare
			others = []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\n ")
		}
		for _, c := range others {
			if c == good[i] {
				continue
			}
			bad := append([]byte{}, good...)
			bad[i] = c
			_, err := trust.Check(s, bad)
			require.Error(t, err, "byte %d", i)
		}
		_, err = trust.Check(s, good[:i])
		require.Error(t, err, "cut at %d", i)
	}
}

// vector is one signed release, so that another language can check itself.
type vector struct {
	Key, Version, Digest string
	Public, Signature    string
}

func TestVectors(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("testdata", "signatures.json"))
	require.NoError(t, err)
	var all []vector
	require.NoError(t, json.Unmarshal(b, &all))
	require.GreaterOrEqual(t, len(all), 2)
	for _, v := range all {
		by, err := (&Trust{Publishers: []Publisher{{Key: v.Public}}, RequireAll: true}).Check(subject(t, v.Key, v.Version, v.Digest), []byte(v.Signature))
		require.NoError(t, err)
		require.True(t, by[0].Trusted)
	}
}

func TestKeyFiles(t *testing.T) {
	t.Parallel()
	s := printer(t)
	for _, bad := range []string{"", "x", "x y", "a+b", "a\nb", "-a", "é", strings.Repeat("a", 129)} {
		_, err := NewKey(filepath.Join(t.TempDir(), "key"), bad)
		if bad == "x" {
			require.NoError(t, err)
			continue
		}
		require.Error(t, err, bad)
	}
	file, _ := publisher(t, "press")
	secret, err := os.ReadFile(file)
	require.NoError(t, err)
	for n, body := range map[string]string{"nothing": "", "text": "hello", "public": "press+00000000+AAAA", "two": string(secret) + string(secret), "cut": string(secret[:len(secret)-9]), "large": strings.Repeat("x", maxKeyFile+1)} {
		at := filepath.Join(t.TempDir(), "key")
		require.NoError(t, os.WriteFile(at, []byte(body), 0o600))
		_, err := Sign(at, s, nil)
		require.Error(t, err, n)
		require.NotContains(t, err.Error(), strings.TrimSpace(string(secret[40:])), n)
	}
	if runtime.GOOS == "windows" {
		return
	}
	require.NoError(t, os.Chmod(file, 0o640))
	_, err = Sign(file, s, nil)
	require.ErrorIs(t, err, private.ErrUnsafe, "a key that others can read is none")
	require.NoError(t, os.Chmod(file, 0o600))
	link := file + "-link"
	require.NoError(t, os.Symlink(file, link))
	_, err = Sign(link, s, nil)
	require.Error(t, err)
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	_, public := publisher(t, "press")
	_, other := publisher(t, "other")
	good := fmt.Sprintf(`{"format": 1, "publishers": [{"key": %q, "connectors": ["printer"]}, {"key": %q}], "requireAll": true, "require": ["printer"]}`, public, other)
	got, err := Parse([]byte(good))
	require.NoError(t, err)
	require.Len(t, got.Publishers, 2)
	require.Equal(t, "press", got.Publishers[0].Name())
	for _, c := range []struct{ name, from, to, want string }{
		{"format", `"format": 1`, `"format": 2`, "format 2 is not known"},
		{"no-format", `"format": 1, `, ``, "format 0 is not known"},
		{"unknown", `"format": 1`, `"format": 1, "trustAll": true`, "unknown field"},
		{"case", `"requireAll"`, `"requireall"`, "did you mean"},
		{"duplicate", `"require": ["printer"]`, `"require": [], "require": ["printer"]`, "duplicate"},
		{"null", `["printer"]}, `, `null}, `, "null"},
		{"no-key", fmt.Sprintf(`"key": %q, `, public), ``, "want a publisher's public key"},
		{"key", public, "press+00000000+AAAA", "want a publisher's public key"},
		{"key-upper", public, strings.ToUpper(public[:14]) + public[14:], "want a publisher's public key"},
		{"key-line", public, public[:30] + `\n` + public[30:], "want a publisher's public key"},
		{"key-other-name", public, "x" + public, "want a publisher's public key"},
		{"twice", other, public, "is there twice"},
		{"connectors-empty", `"connectors": ["printer"]`, `"connectors": []`, "for no Connector"},
		{"connectors-twice", `"connectors": ["printer"]`, `"connectors": ["printer", "printer"]`, "there twice"},
		{"connectors-shape", `"connectors": ["printer"]`, `"connectors": ["*"]`, "connector key"},
		{"require-shape", `"require": ["printer"]`, `"require": ["Printer"]`, "connector key"},
		{"require-twice", `"require": ["printer"]`, `"require": ["printer", "printer"]`, "there twice"},
		{"trailing", `"require": ["printer"]}`, `"require": ["printer"]} {}`, "something follows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, 1, strings.Count(good, c.from))
			_, err := Parse([]byte(strings.Replace(good, c.from, c.to, 1)))
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err = Parse([]byte(good + strings.Repeat(" ", maxTrustBytes)))
	require.ErrorContains(t, err, "more than")
	many := Trust{Publishers: make([]Publisher, maxPublishers+1)}
	require.ErrorContains(t, many.check(), "more than 256 publishers")
	require.ErrorContains(t, connectors(make([]string, maxConnectors+1)), "more than 1024")
}

func TestFile(t *testing.T) {
	t.Parallel()
	s := printer(t)
	file, public := publisher(t, "press")
	sig := sign(t, file, s, nil)
	at := filepath.Join(t.TempDir(), "publishers.json")
	f := At(at)
	empty, err := f.Load()
	require.NoError(t, err)
	require.Equal(t, &Trust{}, empty)
	again, err := f.Load()
	require.NoError(t, err)
	require.Same(t, empty, again)

	require.NoError(t, f.Edit(t.Context(), func(t *Trust) error {
		t.Publishers = append(t.Publishers, Publisher{Key: public})
		t.RequireAll = true
		return nil
	}))
	now, err := f.Load()
	require.NoError(t, err)
	require.True(t, now.RequireAll)
	require.Empty(t, empty.Publishers, "what was handed out does not change")
	same, err := f.Load()
	require.NoError(t, err)
	require.Same(t, now, same, "unchanged, it is not read again")
	by, err := now.Check(s, sig)
	require.NoError(t, err)
	require.True(t, by[0].Trusted)
	if runtime.GOOS != "windows" {
		info, err := os.Stat(at)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}

	other := At(at)
	refused := errors.New("no")
	require.ErrorIs(t, other.Edit(t.Context(), func(*Trust) error { return refused }), refused)
	require.ErrorContains(t, other.Edit(t.Context(), func(t *Trust) error { t.Require = []string{"NO"}; return nil }), "connector key")
	same, err = f.Load()
	require.NoError(t, err)
	require.Same(t, now, same, "an edit that is refused writes nothing")
	require.NoError(t, other.Edit(t.Context(), func(t *Trust) error { t.Publishers = nil; return nil }))
	gone, err := f.Load()
	require.NoError(t, err)
	_, err = gone.Check(s, sig)
	require.ErrorIs(t, err, ErrUntrusted, "another process's edit holds at once")
	require.NoError(t, os.Remove(at))
	gone, err = f.Load()
	require.NoError(t, err)
	require.Equal(t, &Trust{}, gone)

	none := At("")
	got, err := none.Load()
	require.NoError(t, err)
	require.Equal(t, &Trust{}, got)
	require.Error(t, none.Edit(t.Context(), func(*Trust) error { return nil }))
}

// A list that cannot be read trusts nobody and says so, and never means "nothing is
// required".
func TestListThatOthersCanChange(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "publishers.json")
	write := func(body string, mode os.FileMode) {
		require.NoError(t, os.RemoveAll(at))
		require.NoError(t, os.WriteFile(at, []byte(body), mode))
		require.NoError(t, os.Chmod(at, mode))
	}
	f := At(at)
	write(`{"format": 1}`, 0o600)
	_, err := f.Load()
	require.NoError(t, err)
	for _, bad := range []string{"", "{", `{"format": 3}`, `[]`} {
		write(bad, 0o600)
		got, err := f.Load()
		require.Error(t, err, bad)
		require.Nil(t, got)
		require.Error(t, f.Edit(t.Context(), func(*Trust) error { return nil }), "and it is not written over")
	}
	if runtime.GOOS == "windows" {
		return
	}
	for _, mode := range []os.FileMode{0o620, 0o640, 0o644, 0o602, 0o604} {
		write(`{"format": 1}`, mode)
		_, err := f.Load()
		require.ErrorIs(t, err, private.ErrUnsafe, mode)
	}
	real := at + "-real"
	require.NoError(t, os.WriteFile(real, []byte(`{"format": 1}`), 0o600))
	require.NoError(t, os.Remove(at))
	require.NoError(t, os.Symlink(real, at))
	_, err = f.Load()
	require.Error(t, err)
	require.NoError(t, os.Remove(at))
	require.NoError(t, os.Symlink("nowhere", at))
	_, err = f.Load()
	require.Error(t, err, "a link that leads nowhere is no absent list")
	require.NoError(t, os.Remove(at))
	require.NoError(t, os.Mkdir(at, 0o700))
	_, err = f.Load()
	require.ErrorIs(t, err, private.ErrUnsafe)
}

func TestEditsTakeTurns(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "publishers.json")
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := At(at).Edit(ctx, func(t *Trust) error {
				t.Require = append(t.Require, fmt.Sprintf("c%d", i))
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := At(at).Load()
	require.NoError(t, err)
	require.Len(t, got.Require, 20)
}

func FuzzCheck(f *testing.F) {
	s := printer(f)
	file, public := publisher(f, "press")
	good := sign(f, file, s, nil)
	trust := &Trust{Publishers: []Publisher{{Key: public}}, RequireAll: true}
	f.Add(good)
	f.Add([]byte("lend connector release v1\n\n— a AAAAAAA=\n"))
	signed := string(good[:strings.LastIndex(string(good), "\n\n")+2])
	f.Fuzz(func(t *testing.T, sig []byte) {
		by, err := trust.Check(s, sig)
		if err != nil {
			require.Empty(t, by)
			return
		}
		require.True(t, strings.HasPrefix(string(sig), signed), "only that text is signed")
		require.True(t, by[0].Trusted)
	})
}

func FuzzParse(f *testing.F) {
	_, public := publisher(f, "press")
	f.Add([]byte(fmt.Sprintf(`{"format": 1, "publishers": [{"key": %q, "connectors": ["printer"]}], "require": ["printer"]}`, public)))
	f.Add([]byte(`{"format": 1, "requireAll": true}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := Parse(in)
		if err != nil {
			require.Nil(t, got)
			return
		}
		b, err := got.marshal()
		require.NoError(t, err)
		again, err := Parse(b)
		require.NoError(t, err)
		require.Equal(t, got.RequireAll, again.RequireAll)
		require.Len(t, again.Publishers, len(got.Publishers))
	})
}
