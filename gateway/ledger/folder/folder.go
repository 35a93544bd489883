package folder

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// The names in the directory of a ledger. spec: LEDGER-1.
const (
	macName        = "digest.key"
	signerName     = "checkpoint.key"
	checkpointName = "checkpoint"
	reserveName    = "reserve"
	creatingName   = "creating"
	closedName     = "closed"
	newSuffix      = ".new" // a file that is not finished
	roomName       = "room" // with newSuffix only
	lockName       = "lock" // where a directory cannot be locked
	// A segment and its snapshot are named by the index of the first record.
	segmentSuffix  = ".log"
	snapshotSuffix = ".index"
	asideSuffix    = ".lost" // what AcceptLoss of a ledger set aside

	macSize     = 32
	reserveSize = 320 << 10
	roomSize    = 256 << 10 // with reserveSize: when a disk is not full any more
)

// Errors of Enter.
var (
	// ErrLost: the directory belonged to a ledger whose records are gone.
	ErrLost = errors.New("ledger is lost")
	// ErrLocked: another process has the ledger open.
	ErrLocked = errors.New("ledger is in use")

	errNoRoom = errors.New("no room on the disk")
)

// Enter makes the directory if it is not there, takes it for this process until
// unlock is called, and looks at who may read what is in it. empty tells that a
// ledger has to be made with Create. The error is ErrLocked, ErrLost,
// segment.ErrCorrupt, or of the operating system. spec: LEDGER-1, LEDGER-12.
func Enter(dir string) (unlock func() error, empty bool, err error) {
	if unlock, err = Take(dir); err != nil {
		return nil, false, err
	}
	if empty, err = Survey(dir); err != nil {
		return nil, false, errors.Join(err, unlock())
	}
	return unlock, empty, nil
}

// Take makes the directory if it is not there, and takes it for this process until
// unlock is called: ErrLocked.
func Take(dir string) (unlock func() error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	if err := private(info); err != nil {
		return nil, err
	}
	return lockDir(dir)
}

// Survey looks at every file; it tells whether there is no ledger yet: ErrLost,
// segment.ErrCorrupt. spec: LEDGER-12, LEDGER-28.
func Survey(dir string) (empty bool, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	there := make(map[string]bool)
	for _, e := range entries {
		info, err := os.Lstat(filepath.Join(dir, e.Name()))
		if err != nil {
			return false, err
		}
		if !info.Mode().IsRegular() {
			return false, fmt.Errorf("%s is not a regular file", e.Name())
		}
		if err := private(info); err != nil {
			return false, err
		}
		_, isSegment := firstOf(e.Name())
		if strings.HasSuffix(e.Name(), segmentSuffix) && !isSegment {
			return false, &segment.DamageError{What: "a segment that this version does not know"}
		}
		there[e.Name()] = true
		there[segmentSuffix] = there[segmentSuffix] || isSegment
	}
	switch {
	case there[creatingName]:
		return true, nil
	case there[segmentSuffix]:
		return false, nil
	case there[macName] || there[signerName] || there[checkpointName] || there[closedName]:
		return false, ErrLost
	default:
		return true, nil
	}
}

// Folder changes what is in the directory of a ledger.
type Folder struct {
	Path string
	// Step is asked before every change, if it is set; an error stops it there, and
	// what was done stays. Tests end the world in it.
	Step func(what, base string) error
}

func (d Folder) step(what, base string) error {
	if d.Step == nil {
		return nil
	}
	return d.Step(what, base)
}

// Create makes a ledger in an empty directory. The file "creating" is there until all is durable, so
// that a ledger that was half made is not taken for one that was lost. More records
// may follow the first. spec: LEDGER-11.
func (d Folder) Create(now time.Time, more ...[]byte) error {
	if err := d.writeFile(creatingName, nil); err != nil {
		return err
	}
	seg := record.Segment{Birth: now.UTC().Truncate(time.Millisecond)}
	mac := make([]byte, macSize)
	_, _ = rand.Read(mac)
	_, _ = rand.Read(seg.ID[:])
	skey, vkey, err := note.GenerateKey(rand.Reader, segment.Origin(seg.ID))
	if err != nil {
		return err
	}
	seg.VerifierKey = vkey
	signer, err := note.NewSigner(skey)
	if err != nil {
		return err
	}
	var t segment.Tree
	var log []byte
	for _, payload := range append([][]byte{seg.Encode(now)}, more...) {
		log = segment.AppendFrame(log, payload, t.Size(), 0)
		t.Add(payload)
	}
	point, err := segment.SignCheckpoint(seg.ID, &t, signer)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{
		{macName, mac},
		{signerName, []byte(skey + "\n")},
		{checkpointName, point},
		{segmentName(0), log},
	} {
		if err := d.writeFile(f.name, f.data); err != nil {
			return err
		}
	}
	if err := d.remove(creatingName); err != nil {
		return err
	}
	return d.syncDir()
}

func (d Folder) remove(base string) error {
	if err := d.step("remove", base); err != nil {
		return err
	}
	return os.Remove(filepath.Join(d.Path, base))
}

func (d Folder) rename(from, to string) error {
	if err := d.step("rename", to); err != nil {
		return err
	}
	return os.Rename(filepath.Join(d.Path, from), filepath.Join(d.Path, to))
}

func (d Folder) syncDir() error {
	if err := d.step("sync", "."); err != nil {
		return err
	}
	return syncDir(d.Path)
}

// writeFile replaces a file of the directory: durable, whole or not at all.
func (d Folder) writeFile(base string, data []byte) error {
	if err := d.place(base, data, true); err != nil {
		return err
	}
	return d.syncDir()
}

// place replaces a file. Without durable, a power cut may leave anything under its
// name.
func (d Folder) place(base string, data []byte, durable bool) error {
	tmp := base + newSuffix
	if err := d.step("create", tmp); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(d.Path, tmp)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(filepath.Join(d.Path, tmp), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = d.step("write", tmp); err == nil {
		_, err = f.Write(data)
	}
	if err == nil && durable {
		if err = d.step("sync", tmp); err == nil {
			err = f.Sync()
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, d.remove(tmp))
	}
	return d.rename(tmp, base)
}

// readSmall reads a small file that belongs to every ledger.
func readSmall(dir, base string) ([]byte, error) {
	path := filepath.Join(dir, base)
	if err := regular(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &segment.DamageError{What: base + " is not there"}
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, segment.MaxCheckpoint+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", base, err)
	}
	if len(b) > segment.MaxCheckpoint {
		return nil, &segment.DamageError{What: base + " is too long"}
	}
	return b, nil
}

// TakeReserve writes the file that keeps room for ends and events on a full disk. Its bytes
// are random, so that no file system can store it as less than it is.
func (d Folder) TakeReserve() error {
	if info, err := os.Lstat(filepath.Join(d.Path, reserveName)); err == nil && info.Size() == reserveSize {
		return nil
	}
	b := make([]byte, reserveSize)
	_, _ = rand.Read(b)
	return d.writeFile(reserveName, b)
}

// TryRoom tells whether a large record has room, and the reserve if it is not taken:
// it writes a file and removes it, unless the system says before that there is none.
// What room there is stays for others.
func (d Folder) TryRoom(reserved bool) error {
	n := roomSize
	if !reserved {
		n += reserveSize
	}
	if free, ok := freeBytes(d.Path); ok && free < uint64(n) {
		return errNoRoom
	}
	b := make([]byte, n)
	_, _ = rand.Read(b)
	if err := d.step("create", roomName+newSuffix); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(d.Path, roomName+newSuffix), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err = d.step("write", roomName+newSuffix); err == nil {
		_, err = f.Write(b)
	}
	return errors.Join(err, f.Close(), d.remove(roomName+newSuffix))
}

// GiveReserve gives that room back.
func (d Folder) GiveReserve() error { return d.remove(reserveName) }

// WriteCheckpoint replaces the newest checkpoint.
func (d Folder) WriteCheckpoint(signed []byte) error { return d.writeFile(checkpointName, signed) }

// ReadCheckpoint returns the newest checkpoint; segment.ErrCorrupt if it is not
// there, since every ledger has one.
func ReadCheckpoint(dir string) ([]byte, error) { return readSmall(dir, checkpointName) }
