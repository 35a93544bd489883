package revocations

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/protocol/name"
)

var testTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

type key struct {
	priv crypto.PrivKey
	id   name.PeerID
}

func testKey(letter byte) key {
	priv, _, err := crypto.GenerateEd25519Key(bytes.NewReader(bytes.Repeat([]byte{letter}, 64)))
	if err != nil {
		panic(err)
	}
	return key{priv, must(name.PeerIDFromKey(must(priv.GetPublic().Raw())))}
}

func leaseOf(n byte) lease.Subject {
	return lease.Subject{
		Lease: lease.ID{n}, Invocation: must(name.ParseInvocationID(fmt.Sprintf("run-%d", n))),
		Holder: testKey('h').id, Issuer: testKey('i').id, IssuedAt: testTime,
	}
}

func entryOf(n byte) revocation.Entry {
	return revocation.Entry{Lease: lease.ID{n}, IssuedBefore: testTime.Add(time.Second)}.Kept(testTime)
}

// files returns the paths of a new store.
func files(t *testing.T) (file, mark string) {
	t.Helper()
	dir := t.TempDir()
	file, mark = filepath.Join(dir, "revocations"), filepath.Join(dir, "lockdown")
	require.NoError(t, Create(file))
	return file, mark
}

// spec: REVOKE-13
func TestAddIsKept(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	require.ErrorIs(t, Create(file), os.ErrExist)
	s := Open(file, mark)
	require.NoError(t, s.Locked())
	require.False(t, s.Revoked(leaseOf(1)))
	n, err := s.Add(testTime, entryOf(1), entryOf(2))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	again := Open(file, mark) // as after kill -9: nothing was closed
	for _, s := range []*Store{s, again} {
		require.True(t, s.Revoked(leaseOf(1)))
		require.True(t, s.Revoked(leaseOf(2)))
		require.False(t, s.Revoked(leaseOf(3)))
		require.Equal(t, []revocation.Entry{entryOf(1), entryOf(2)}, s.Entries())
	}
}

func TestAddTwiceWritesOnce(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	require.Equal(t, 1, must(s.Add(testTime, entryOf(1))))
	before := must(os.Stat(file))
	later := entryOf(1)
	later.At = testTime.Add(time.Hour)
	require.Zero(t, must(s.Add(testTime.Add(time.Hour), later)))
	require.True(t, os.SameFile(before, must(os.Stat(file))), "the file was not replaced")
	wider := revocation.Entry{Issuer: testKey('i').id}.Kept(testTime)
	require.Equal(t, 1, must(s.Add(testTime, wider)))
	require.Equal(t, 1, must(s.Add(testTime, entryOf(9))), "it is of any issuer")
	require.Len(t, s.Entries(), 3)
	all := revocation.Entry{IssuedBefore: testTime.Add(time.Second)}.Kept(testTime)
	require.Equal(t, 1, must(s.Add(testTime, all)))
	require.Equal(t, []revocation.Entry{wider, all}, s.Entries(), "what it covers is not kept")
}

// spec: REVOKE-14
func TestWhatIsNotReadableDeniesAll(t *testing.T) {
	t.Parallel()
	for label, damage := range map[string]func(file string) error{
		"missing":   os.Remove,
		"empty":     func(f string) error { return os.WriteFile(f, nil, 0o600) },
		"torn":      func(f string) error { return os.Truncate(f, must(os.Stat(f)).Size()-3) },
		"older":     func(f string) error { return os.WriteFile(f, must(must(revocation.New()).Marshal()), 0o600) },
		"directory": func(f string) error { return joined(os.Remove(f), os.Mkdir(f, 0o700)) },
		"symlink":   func(f string) error { return joined(os.Rename(f, f+"2"), os.Symlink(f+"2", f)) },
		"writable":  func(f string) error { return os.Chmod(f, 0o666) },
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			file, mark := files(t)
			s := Open(file, mark)
			must(s.Add(testTime, entryOf(1)))
			require.NoError(t, damage(file))
			if label != "older" { // the next start cannot tell; the ledger has what was revoked
				started := Open(file, mark)
				require.True(t, started.Revoked(leaseOf(5)))
				require.ErrorIs(t, started.Locked(), ErrUnreadable)
				require.Empty(t, started.Entries())
				_, err := started.Add(testTime, entryOf(2))
				require.ErrorIs(t, err, ErrUnreadable)
			}
			running := s
			require.False(t, running.Revoked(leaseOf(5)), "nothing looked yet")
			running.Refresh()
			require.True(t, running.Revoked(leaseOf(5)))
			require.ErrorIs(t, running.Locked(), ErrUnreadable)
			_, err := running.Add(testTime, entryOf(2))
			require.ErrorIs(t, err, ErrUnreadable)
		})
		t.Run(label+"-at-a-change", func(t *testing.T) {
			t.Parallel()
			file, mark := files(t)
			s := Open(file, mark)
			must(s.Add(testTime, entryOf(1)))
			require.NoError(t, damage(file))
			_, err := s.Add(testTime, entryOf(2))
			require.ErrorIs(t, err, ErrUnreadable)
			require.True(t, s.Revoked(leaseOf(5)))
		})
	}
}

func joined(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// A file that was copied back with the same content is the same.
func TestSameContentIsFine(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	must(s.Add(testTime, entryOf(1)))
	b := must(os.ReadFile(file))
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.WriteFile(file, b, 0o600))
	s.Refresh()
	require.NoError(t, s.Locked())
	require.Equal(t, 1, must(s.Add(testTime, entryOf(2))))
}

// What cannot be written counts nevertheless, is an error, and is written with the
// next.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	works, full := s.replace, errors.New("disk full")
	s.replace = func(string, []byte) error { return full }
	_, err := s.Add(testTime, entryOf(1))
	require.ErrorIs(t, err, full)
	require.True(t, s.Revoked(leaseOf(1)))
	require.NoError(t, s.Locked())
	_, err = s.Add(testTime, entryOf(1))
	require.Error(t, err, "it is not kept yet")
	require.Error(t, s.Lock(testTime, ""))
	require.True(t, s.Revoked(leaseOf(2)), "the lockdown holds")
	s.replace = works
	require.NoError(t, s.Lock(testTime, ""), "and is kept now")
	require.Error(t, Open(file, mark).Locked())
	require.True(t, must(s.Unlock()))
	n, err := s.Add(testTime, entryOf(1))
	require.NoError(t, err)
	require.Zero(t, n)
	require.True(t, Open(file, mark).Revoked(leaseOf(1)))

	s.replace = func(file string, b []byte) error { return joined(works(file, b), full) } // it may be lost yet
	_, err = s.Add(testTime, entryOf(2))
	require.ErrorIs(t, err, full)
	require.NoError(t, s.Locked())
	s.replace = works
	n, err = s.Add(testTime, entryOf(3))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Len(t, Open(file, mark).Entries(), 3)
}

// spec: REVOKE-14
func TestRenew(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	must(s.Add(testTime, entryOf(1)))
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.False(t, must(s.Renew(testTime)))
	require.Len(t, s.Entries(), 1, "it was readable")
	require.NoError(t, os.Remove(file))
	s.Refresh()
	require.Error(t, s.Locked())
	require.NoError(t, os.WriteFile(file, kept, 0o600))
	require.False(t, must(s.Renew(testTime)), "it was restored: nothing is begun anew, and nobody is told so")
	require.NoError(t, s.Locked())
	require.Len(t, s.Entries(), 1)
	require.NoError(t, os.WriteFile(file, []byte("garbage"), 0o600))
	s.Refresh()
	require.Error(t, s.Locked())
	require.True(t, must(s.Renew(testTime)))
	require.NoError(t, s.Locked())
	require.True(t, s.Revoked(leaseOf(7)), "all that was issued until now")
	later := leaseOf(7)
	later.IssuedAt = testTime.Add(lease.DefaultSkew)
	require.False(t, s.Revoked(later))
	require.Equal(t, s.Entries(), Open(file, mark).Entries())
	old, err := filepath.Glob(file + ".*")
	require.NoError(t, err)
	require.Len(t, old, 1, "nothing is deleted")
	require.NoError(t, os.Remove(file))
	s.Refresh()
	require.True(t, must(s.Renew(testTime)))
	require.NoError(t, s.Locked())
}

// spec: REVOKE-11, REVOKE-15
func TestForgetsWhatIsOver(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	must(s.Add(testTime, entryOf(1), revocation.Entry{Lease: lease.ID{2}}.Kept(testTime)))
	over := entryOf(1).Until
	must(s.Add(over.Add(-time.Millisecond), entryOf(3)))
	require.Len(t, s.Entries(), 3)
	must(s.Add(time.Time{}, entryOf(4)))
	require.Len(t, s.Entries(), 4, "no time, nothing is over")
	late := revocation.Entry{Lease: lease.ID{5}}.Kept(over)
	must(s.Add(over, late))
	require.Equal(t, []revocation.Entry{revocation.Entry{Lease: lease.ID{2}}.Kept(testTime), late}, s.Entries())
}

func authority() *revocation.Authority {
	return &revocation.Authority{
		Gateway: testKey('g').id, Owner: testKey('o').id, Now: func() time.Time { return testTime },
		Listed: func(p name.PeerID) bool { return p == testKey('i').id },
	}
}

func sealed(by key, e revocation.Entry) []byte {
	return must(revocation.Seal(revocation.Statement{ID: lease.NewID(), Issuer: by.id, Gateway: testKey('g').id, At: testTime, Entry: e}, by.priv))
}

// spec: REVOKE-9
func TestAccept(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	envelope := sealed(testKey('i'), revocation.Entry{Holder: testKey('h').id})
	by, e, added, err := s.Accept(authority(), envelope)
	require.NoError(t, err)
	require.Equal(t, testKey('i').id, by)
	require.True(t, added)
	require.Equal(t, map[string]string{"holder": testKey('h').id.String(), "issuer": testKey('i').id.String()}, Facts(&e))
	require.True(t, s.Revoked(leaseOf(1)))
	other := leaseOf(1)
	other.Issuer = testKey('o').id
	require.False(t, s.Revoked(other), "of another issuer")
	_, _, added, err = s.Accept(authority(), envelope)
	require.NoError(t, err)
	require.False(t, added, "a replay changes nothing")
	require.Len(t, s.Entries(), 1)
	_, _, _, err = s.Accept(authority(), sealed(testKey('x'), revocation.Entry{Holder: testKey('h').id}))
	var refused *revocation.Error
	require.ErrorAs(t, err, &refused)
	require.Len(t, s.Entries(), 1)
	_, _, _, err = s.Accept(authority(), sealed(testKey('o'), revocation.Entry{Holder: testKey('h').id}))
	require.NoError(t, err)
	require.True(t, s.Revoked(other))
	require.Len(t, s.Entries(), 1, "the owner's covers the issuer's")
}

// An issuer that revokes without end leaves room for others, and for the owner.
// spec: REVOKE-15
func TestIssuerIsBounded(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	var many []revocation.Entry
	for i := range MaxOfIssuer {
		id := lease.ID{byte(i), byte(i >> 8), 1}
		many = append(many, revocation.Entry{Lease: id, Issuer: testKey('i').id}.Kept(testTime))
	}
	must(s.Add(testTime, many...))
	envelope := sealed(testKey('i'), revocation.Entry{Lease: lease.ID{7}})
	_, _, _, err := s.Accept(authority(), envelope)
	require.ErrorIs(t, err, ErrFull)
	require.Len(t, s.Entries(), MaxOfIssuer, "none was dropped")
	_, _, added, err := s.Accept(authority(), sealed(testKey('i'), revocation.Entry{Lease: lease.ID{1, 0, 1}}))
	require.NoError(t, err, "what is kept already is answered")
	require.False(t, added)
	_, _, _, err = s.Accept(authority(), sealed(testKey('o'), revocation.Entry{Lease: lease.ID{7}}))
	require.NoError(t, err, "the owner has room")
	require.Equal(t, 1, must(s.Add(testTime, revocation.Entry{Issuer: testKey('i').id}.Kept(testTime))))
	require.Len(t, s.Entries(), 2, "one for all of an issuer's makes room")
}

// Who only passes leases on has less room.
// spec: REVOKE-15
func TestHolderIsBounded(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	a := authority()
	a.PassesOn = func(id name.PeerID) bool { return id == testKey('h').id }
	var many []revocation.Entry
	for i := range MaxOfHolder - 1 {
		many = append(many, revocation.Entry{Lease: lease.ID{byte(i), 1}, Issuer: testKey('h').id}.Kept(testTime))
	}
	must(s.Add(testTime, many...))
	_, _, added, err := s.Accept(a, sealed(testKey('h'), revocation.Entry{Lease: lease.ID{7}}))
	require.NoError(t, err)
	require.True(t, added)
	_, _, _, err = s.Accept(a, sealed(testKey('h'), revocation.Entry{Lease: lease.ID{8}}))
	require.ErrorIs(t, err, ErrFull)
	require.Len(t, s.Entries(), MaxOfHolder)
	_, _, _, err = s.Accept(a, sealed(testKey('i'), revocation.Entry{Lease: lease.ID{8}}))
	require.NoError(t, err, "issuers have more")
}

// spec: REVOKE-15
func TestFullIsAnError(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	many := make([]revocation.Entry, revocation.MaxEntries)
	for i := range many {
		many[i] = revocation.Entry{Lease: lease.ID{byte(i), byte(i >> 8), byte(i >> 16), 1}}
	}
	require.NoError(t, os.WriteFile(file, must(must(revocation.New(many...)).Marshal()), 0o600))
	s := Open(file, mark)
	require.NoError(t, s.Locked())
	_, err := s.Add(testTime, entryOf(7))
	require.ErrorIs(t, err, ErrFull)
	require.Len(t, s.Entries(), revocation.MaxEntries)
	require.False(t, s.Revoked(leaseOf(7)))
}

// What issuers may fill together leaves room for the owner.
// spec: REVOKE-15
func TestIssuersLeaveRoom(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	many := make([]revocation.Entry, MaxOfIssuers)
	for i := range many {
		many[i] = revocation.Entry{Lease: lease.ID{byte(i), byte(i >> 8), byte(i >> 16), 1}, Issuer: testKey('x').id}
	}
	require.NoError(t, os.WriteFile(file, must(must(revocation.New(many...)).Marshal()), 0o600))
	s := Open(file, mark)
	_, _, _, err := s.Accept(authority(), sealed(testKey('i'), revocation.Entry{Lease: lease.ID{7}}))
	require.ErrorIs(t, err, ErrFull)
	_, _, _, err = s.Accept(authority(), sealed(testKey('o'), revocation.Entry{Lease: lease.ID{7}}))
	require.NoError(t, err)
}

// Readers see what was before or after, and all that was answered is on disk.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 8 {
				n := byte(8*i + j)
				if _, err := s.Add(testTime, entryOf(n+1)); err != nil || !s.Revoked(leaseOf(n+1)) {
					panic(fmt.Sprint("not revoked: ", err))
				}
				s.Refresh()
			}
		})
	}
	wg.Wait()
	require.NoError(t, s.Locked())
	require.Len(t, Open(file, mark).Entries(), 64)
}

// spec: REVOKE-16
func TestLockdown(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	require.Nil(t, s.Lockdown())
	require.NoError(t, s.Lock(testTime, "stolen laptop"))
	require.NoError(t, s.Lock(testTime.Add(time.Hour), "again"))
	again := Open(file, mark)
	for _, s := range []*Store{s, again} {
		require.True(t, s.Revoked(leaseOf(1)))
		require.Equal(t, &LockdownError{Since: testTime, Why: "stolen laptop"}, s.Lockdown())
		var locked *LockdownError
		require.ErrorAs(t, s.Locked(), &locked)
		require.Equal(t, "lockdown since 2026-11-30T12:00:00Z: stolen laptop", locked.Error())
	}
	require.Equal(t, 1, must(again.Add(testTime, entryOf(1))), "revoking goes on")
	require.True(t, must(s.Unlock()))
	require.Nil(t, Open(file, mark).Lockdown())
	require.False(t, must(s.Unlock()))
	require.NoError(t, s.Locked())
	require.Error(t, s.Lock(testTime, "two\nlines"))
	require.Error(t, s.Lock(testTime, strings.Repeat("x", 201)))
	require.NoError(t, s.Locked())
}

// Another process may set the mark; that it is gone unlocks nothing that runs.
// spec: REVOKE-16
func TestMarkOfAnotherProcess(t *testing.T) {
	t.Parallel()
	for label, text := range map[string]string{
		"ours": "lend lockdown 1\nsince 2026-11-30T12:00:00Z\nwhy because\n", "empty": "", "garbage": "why \x1b[2J\nsince never\n",
		"large": strings.Repeat("x", maxMark+1),
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			file, mark := files(t)
			s := Open(file, mark)
			require.NoError(t, os.WriteFile(mark, []byte(text), 0o600))
			s.Refresh()
			require.True(t, s.Revoked(leaseOf(1)))
			require.NotContains(t, s.Locked().Error(), "\x1b")
			require.NoError(t, os.Remove(mark))
			s.Refresh()
			require.True(t, s.Revoked(leaseOf(1)))
			require.True(t, must(s.Unlock()))
			require.False(t, s.Revoked(leaseOf(1)))
		})
	}
	file, mark := files(t)
	require.NoError(t, os.Mkdir(mark, 0o700))
	require.Error(t, Open(file, mark).Locked(), "whatever it is")
	var locked *LockdownError
	require.ErrorAs(t, Open(file, filepath.Join(file, "mark")).Locked(), &locked, "it cannot be told")
}

// A restored file counts again, but only one that has all that was accepted.
// spec: REVOKE-14
func TestRestore(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	require.False(t, s.Restore(), "it was readable")
	must(s.Add(testTime, entryOf(1)))
	older := must(os.ReadFile(file))
	holder := revocation.Entry{Holder: testKey('h').id, Issuer: testKey('i').id}.Kept(testTime)
	must(s.Add(testTime, entryOf(2), holder))
	newest := must(os.ReadFile(file))
	more := must(must(revocation.New(entryOf(1), entryOf(2), holder, entryOf(3))).Marshal())
	lose := func() {
		require.NoError(t, os.Remove(file))
		s.Refresh()
		require.ErrorIs(t, s.Locked(), ErrUnreadable)
		require.False(t, s.Restore(), "it is not there")
	}
	for _, good := range [][]byte{newest, more} {
		lose()
		require.NoError(t, os.WriteFile(file, good, 0o600))
		s.Refresh()
		require.ErrorIs(t, s.Locked(), ErrUnreadable, "nobody said that it is the right one")
		require.True(t, s.Restore())
		require.NoError(t, s.Locked())
		require.True(t, s.Revoked(leaseOf(2)))
		require.Equal(t, s.Entries(), Open(file, mark).Entries())
	}
	require.Equal(t, 1, must(s.Add(testTime, entryOf(4))))
	lose()
	require.NoError(t, os.WriteFile(file, older, 0o600))
	require.False(t, s.Restore())
	require.ErrorContains(t, s.Locked(), "lacks what was revoked since")
	require.True(t, s.Revoked(leaseOf(5)))
	require.NoError(t, s.Lock(testTime, ""))
	require.ErrorIs(t, s.Unreadable(), ErrUnreadable, "a lockdown does not hide it")
	require.True(t, must(s.Unlock()))
	require.True(t, must(s.Renew(testTime)), "an older file is no better than none")
	require.NoError(t, s.Locked())
	later := leaseOf(9)
	later.IssuedAt = testTime.Add(time.Hour)
	require.True(t, s.Revoked(later), "the holder stays revoked")
	require.Equal(t, s.Entries(), Open(file, mark).Entries())
}

// What counts and could not be written is not lost by a file that was restored.
func TestRestoreWhatWasNotWritten(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	b := must(os.ReadFile(file))
	works := s.replace
	s.replace = func(string, []byte) error { return errors.New("disk full") }
	_, err := s.Add(testTime, entryOf(1))
	require.Error(t, err)
	require.NoError(t, os.Remove(file))
	s.Refresh()
	require.NoError(t, os.WriteFile(file, b, 0o600))
	require.False(t, s.Restore())
	_, err = s.Renew(testTime)
	require.Error(t, err)
	require.True(t, s.Revoked(leaseOf(1)))
	require.NoError(t, os.WriteFile(file, must(must(revocation.New(entryOf(1))).Marshal()), 0o600))
	require.True(t, s.Restore(), "a loss that was not accepted, in the end, asks for nothing")
	require.False(t, s.Revoked(leaseOf(5)))
	require.NoError(t, os.Remove(file))
	s.Refresh()
	s.replace = works
	require.True(t, must(s.Renew(testTime)))
	require.True(t, s.Revoked(leaseOf(1)))
}

// An edit in place, with the size and the time of the content put back.
func TestEditThatHidesItself(t *testing.T) {
	t.Parallel()
	file, mark := files(t)
	s := Open(file, mark)
	must(s.Add(testTime, entryOf(1)))
	before := must(os.Stat(file))
	if changeTime(before) == 0 {
		t.Skip("this system does not say when a file was changed")
	}
	b := must(os.ReadFile(file))
	b[len(b)/2] ^= 1
	require.Eventually(t, func() bool { // the clock of files has moved on
		require.NoError(t, os.WriteFile(file, b, 0o600))
		require.NoError(t, os.Chtimes(file, before.ModTime(), before.ModTime()))
		return changeTime(must(os.Stat(file))) != changeTime(before)
	}, 10*time.Second, time.Millisecond)
	now := must(os.Stat(file))
	require.True(t, os.SameFile(before, now) && before.Size() == now.Size() && before.ModTime().Equal(now.ModTime()))
	s.Refresh()
	require.ErrorIs(t, s.Locked(), ErrUnreadable)
}
