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
	segmentName    = "00000000000000000000.log" // the index of its first record
	macName        = "digest.key"
	signerName     = "checkpoint.key"
	checkpointName = "checkpoint"
	reserveName    = "reserve"
	creatingName   = "creating"

	macSize     = 32
	reserveSize = 256 << 10
)

// Errors of Enter.
var (
	// ErrLost: the directory belonged to a ledger whose records are gone.
	ErrLost = errors.New("ledger is lost")
	// ErrLocked: another process has the ledger open.
	ErrLocked = errors.New("ledger is in use")
)

// Enter makes the directory if it is not there, takes it for this process until
// unlock is called, and looks at who may read what is in it. empty tells that a
// ledger has to be made with Create. The error is ErrLocked, ErrLost,
// segment.ErrCorrupt, or of the operating system. spec: LEDGER-1, LEDGER-12.
func Enter(dir string) (unlock func() error, empty bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, false, err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, false, err
	}
	if !info.IsDir() {
		return nil, false, fmt.Errorf("%s is not a directory", dir)
	}
	if err := private(info); err != nil {
		return nil, false, err
	}
	if unlock, err = lockDir(dir); err != nil {
		return nil, false, err
	}
	empty, err = surveyDir(dir)
	if err != nil {
		return nil, false, errors.Join(err, unlock())
	}
	return unlock, empty, nil
}

// surveyDir looks at every file; it tells whether there is no ledger yet.
// spec: LEDGER-12, LEDGER-28.
func surveyDir(dir string) (empty bool, err error) {
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
		if strings.HasSuffix(e.Name(), ".log") && e.Name() != segmentName {
			return false, &segment.DamageError{What: "a segment that this version does not know"}
		}
		there[e.Name()] = true
	}
	switch {
	case there[creatingName]:
		return true, nil
	case there[segmentName]:
		return false, nil
	case there[macName] || there[signerName] || there[checkpointName]:
		return false, ErrLost
	default:
		return true, nil
	}
}

// Create makes a ledger in an empty directory. The file "creating" is there until all is durable, so
// that a ledger that was half made is not taken for one that was lost.
// spec: LEDGER-11.
func Create(dir string, now time.Time) error {
	if err := writeFile(dir, creatingName, nil); err != nil {
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
	payload := seg.Encode(now)
	t.Add(payload)
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
		{segmentName, segment.AppendFrame(nil, payload, 0, 0)},
	} {
		if err := writeFile(dir, f.name, f.data); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(dir, creatingName)); err != nil {
		return err
	}
	return syncDir(dir)
}

// writeFile replaces a file of the directory: durable, whole or not at all.
func writeFile(dir, base string, data []byte) error {
	tmp := filepath.Join(dir, base+".new")
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, filepath.Join(dir, base)); err != nil {
		return err
	}
	return syncDir(dir)
}

// readSmall reads a small file that belongs to every ledger.
func readSmall(dir, base string) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, base))
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

// TakeReserve writes the file that keeps room for ends on a full disk. Its bytes
// are random, so that no file system can store it as less than it is.
func TakeReserve(dir string) error {
	if info, err := os.Lstat(filepath.Join(dir, reserveName)); err == nil && info.Size() == reserveSize {
		return nil
	}
	b := make([]byte, reserveSize)
	_, _ = rand.Read(b)
	return writeFile(dir, reserveName, b)
}

// GiveReserve gives that room back.
func GiveReserve(dir string) error { return os.Remove(filepath.Join(dir, reserveName)) }

// WriteCheckpoint replaces the newest checkpoint.
func WriteCheckpoint(dir string, signed []byte) error { return writeFile(dir, checkpointName, signed) }

// ReadCheckpoint returns the newest checkpoint; segment.ErrCorrupt if it is not
// there, since every ledger has one.
func ReadCheckpoint(dir string) ([]byte, error) { return readSmall(dir, checkpointName) }
