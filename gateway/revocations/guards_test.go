package revocations

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/protocol/name"
)

func guardPeer(t *testing.T, n uint32) name.PeerID {
	t.Helper()
	seed := make([]byte, ed25519.SeedSize)
	binary.BigEndian.PutUint32(seed, n)
	id, err := name.PeerIDFromKey(ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey))
	require.NoError(t, err)
	return id
}

// TestIllegibleLinkIsTheLastOne: a link of which a part cannot be read is taken for the
// lease that the record is of, and not for one of nobody.
func TestIllegibleLinkIsTheLastOne(t *testing.T) {
	t.Parallel()
	holder, issuer, other := guardPeer(t, 1), guardPeer(t, 2), guardPeer(t, 3)
	last := lease.Subject{Lease: lease.ID{1}, Holder: holder, Issuer: issuer}
	set := func(e ...revocation.Entry) lease.RevocationChecker {
		s, err := revocation.New(e...)
		require.NoError(t, err)
		return s
	}
	id := lease.ID{9}.String()
	legible := fmt.Sprintf("%s:%d:%s:%s", id, time.Now().UnixMilli(), other, other)
	for title, link := range map[string]string{
		"holder": fmt.Sprintf("%s:1:nobody:%s", id, other), "issuer": fmt.Sprintf("%s:1:%s:nobody", id, other),
		"identifier": "x:1", "time": id + ":x", "parts": id,
	} {
		for _, e := range []revocation.Entry{{Holder: holder}, {Issuer: issuer}, {Lease: lease.ID{1}}} {
			require.True(t, Past(set(e), last, link), "%s %+v", title, e)
			require.True(t, Past(set(e), last, legible+" "+link), "%s %+v", title, e)
		}
		require.False(t, Past(set(), last, link), "%s: nothing was revoked", title)
	}
	require.False(t, Past(set(revocation.Entry{Holder: holder}), last, legible), "a link of others says nothing of this holder")
	require.True(t, Past(nil, last, legible))
	require.True(t, Past(nil, last, ""))
}

// TestIssuersTogetherAreBounded: many issuers, each with few.
func TestIssuersTogetherAreBounded(t *testing.T) {
	t.Parallel()
	each := MaxOfIssuer / 2
	var entries []revocation.Entry
	for n := uint32(0); len(entries) < MaxOfIssuers; n++ {
		issuer := guardPeer(t, 10+n)
		for i := 0; i < each && len(entries) < MaxOfIssuers; i++ {
			e := revocation.Entry{Issuer: issuer, Lease: lease.ID{1}}
			binary.BigEndian.PutUint64(e.Lease[8:], uint64(len(entries)+1))
			entries = append(entries, e)
		}
	}
	full, err := revocation.New(entries...)
	require.NoError(t, err)
	few, err := revocation.New(entries[:each]...)
	require.NoError(t, err)
	var s Store
	s.set.Store(full)
	require.True(t, s.crowded(guardPeer(t, 1), true))
	s.set.Store(few)
	require.False(t, s.crowded(guardPeer(t, 1), true))
}

// TestWhatIsNoSetIsNotMade: nothing is written of it, and nothing that there was is
// touched.
func TestWhatIsNoSetIsNotMade(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "revocations")
	require.ErrorContains(t, create(none, revocation.Entry{}), "names nothing")
	require.NoFileExists(t, none)

	file, mark := files(t)
	s := Open(file, mark)
	must(s.Add(testTime, entryOf(1)))
	before := must(os.ReadFile(file))
	added, err := s.Add(testTime, revocation.Entry{})
	require.ErrorContains(t, err, "names nothing")
	require.Zero(t, added)
	require.Equal(t, []revocation.Entry{entryOf(1)}, s.Entries())
	require.Equal(t, before, must(os.ReadFile(file)))

	require.NoError(t, os.WriteFile(file, []byte("garbage"), 0o600))
	s.Refresh()
	begun, err := s.Renew(time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC))
	require.ErrorContains(t, err, "out of range")
	require.False(t, begun)
	require.ErrorIs(t, s.Locked(), ErrUnreadable)
	require.Equal(t, "garbage", string(must(os.ReadFile(file))), "it is where it was")
}

// TestWrittenAndGone: a file that is not there right after it was written is not one
// that anything may rely on.
func TestWrittenAndGone(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	works := s.replace
	s.replace = func(file string, b []byte) error { return joined(works(file, b), os.Remove(file)) }
	_, err := s.Add(testTime, entryOf(1))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "keep the revocation")
	require.ErrorIs(t, s.Locked(), ErrUnreadable)
	require.True(t, s.Revoked(leaseOf(5)))
}

// TestOldFileThatCannotBeKept is not replaced.
func TestOldFileThatCannotBeKept(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	require.NoError(t, os.WriteFile(file, []byte("garbage"), 0o600))
	s.Refresh()
	require.NoError(t, os.MkdirAll(filepath.Join(file+"."+testTime.Format("20060102T150405.000"), "full"), 0o700))
	begun, err := s.Renew(testTime)
	require.ErrorContains(t, err, "keep the old revocations")
	require.False(t, begun)
	require.ErrorIs(t, s.Locked(), ErrUnreadable)
	require.Equal(t, "garbage", string(must(os.ReadFile(file))))
}

// TestMarkThatCannotBeRemoved: then the lockdown is not over.
func TestMarkThatCannotBeRemoved(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	require.NoError(t, os.MkdirAll(filepath.Join(mark, "full"), 0o700))
	s.Refresh()
	require.Equal(t, &LockdownError{}, s.Lockdown(), "a mark that says nothing")
	was, err := s.Unlock()
	require.ErrorContains(t, err, "end the lockdown")
	require.True(t, was)
	require.True(t, s.Revoked(leaseOf(1)))
	require.NoError(t, os.Remove(filepath.Join(mark, "full")))
	require.True(t, must(s.Unlock()))
	require.NoError(t, s.Locked())
}

// facts are what a system could tell of a file.
type facts struct {
	os.FileInfo
	size int64
	mod  time.Time
	mode os.FileMode
	sys  any
}

func (f facts) Size() int64        { return f.size }
func (f facts) ModTime() time.Time { return f.mod }
func (f facts) Mode() os.FileMode  { return f.mode }
func (f facts) Sys() any           { return f.sys }

func TestEachFactOfAFileCounts(t *testing.T) {
	t.Parallel()
	was := facts{size: 7, mod: testTime, mode: 0o600}
	same := was
	same.mod = testTime.In(time.FixedZone("", 3600))
	require.True(t, sameFacts(was, same))
	for title, change := range map[string]func(*facts){
		"size": func(f *facts) { f.size++ },
		"time": func(f *facts) { f.mod = f.mod.Add(time.Nanosecond) },
		"mode": func(f *facts) { f.mode |= 0o020 },
		"kind": func(f *facts) { f.mode |= os.ModeSymlink },
	} {
		now := was
		change(&now)
		require.False(t, sameFacts(was, now), title)
	}
}

// TestTwinIsAnotherFile: one that was made at the same moment, with the same content.
func TestTwinIsAnotherFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for deadline := time.Now().Add(10 * time.Second); ; {
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		require.NoError(t, errors.Join(os.WriteFile(a, nil, 0o600), os.WriteFile(b, nil, 0o600)))
		require.NoError(t, errors.Join(os.Chtimes(a, testTime, testTime), os.Chtimes(b, testTime, testTime)))
		one, two := must(os.Lstat(a)), must(os.Lstat(b))
		if sameFacts(one, two) {
			require.True(t, sameState(one, must(os.Lstat(a))))
			require.False(t, sameState(one, two))
			return
		}
		if time.Now().After(deadline) {
			t.Skip("the clock of files is too fine for twins here")
		}
		require.NoError(t, errors.Join(os.Remove(a), os.Remove(b)))
	}
}
