package depot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/failpoint"
	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/internal/filelock"
	"github.com/lendcli/lend/localhost/internal/strictjson"
)

// ErrNotInstalled means that nothing is current in a slot.
var ErrNotInstalled = errors.New("not installed")

// ErrFormat means a receipt of a format that is not known.
var ErrFormat = errors.New("written by another version of lend")

const (
	receiptFile = "receipt.json"
	useFile     = "use.lock"
	maxReceipt  = 64 << 10

	// receiptFormat is the version of receipts. Others are refused.
	receiptFormat = 1
)

// Receipt says what is current in a slot. It is never an authenticity root: what it
// says is compared with what is hashed.
type Receipt struct {
	Format    int    `json:"format"`
	Directory string `json:"directory"` // beside the receipt

	// Superseded says that another version has taken its place: nothing starts from it
	// any more, and it goes when no process uses it.
	Superseded bool `json:"superseded,omitempty"`

	Name    string `json:"name"` // connector key or runtime name
	Version string `json:"version"`

	ReleaseDigest  string `json:"releaseDigest,omitempty"`
	ContractHash   string `json:"contractHash,omitempty"`
	ArtifactDigest string `json:"artifactDigest,omitempty"`
	PackageDigest  string `json:"packageDigest,omitempty"`
	Script         string `json:"script,omitempty"` // in the package tree
	Native         bool   `json:"native,omitempty"` // Script is an executable, which needs no runtime
	HasScripts     bool   `json:"hasScripts,omitempty"`
	Signature      string `json:"signature,omitempty"` // SHA-256 of its signature file; "" for none

	// Runtime is what the release runs on; of a runtime's own receipt, itself.
	Runtime *Runtime `json:"runtime,omitempty"`
}

// Runtime names one interpreter exactly. It is comparable.
type Runtime struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Digest  string `json:"digest"`           // of its tree
	Exec    string `json:"exec"`             // in its tree
	Target  string `json:"target,omitempty"` // "linux-x64"
	Home    string `json:"home,omitempty"`   // in its tree: what holds its standard library
}

// Slot is the place of one version: a receipt that names the current directory
// beside it, and perhaps directories that were current before.
type Slot struct {
	d   *Depot
	rel string
}

// Slot is the place of one version of one Connector or runtime.
func (d *Depot) Slot(kind, owner, version string) Slot {
	return Slot{d, path.Join(kind, owner, version)}
}

// place looks at the directories of the owner and of the version themselves: a link in
// the place of one is not followed. A *Damage is about the whole owner.
func (sl Slot) place() error {
	owner := path.Dir(sl.rel)
	info, err := os.Lstat(sl.d.Path(owner))
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return &Damage{Kind: path.Dir(owner), Owner: sl.Owner(), Err: errLink}
	}
	if info, err = os.Lstat(sl.d.Path(sl.rel)); err != nil {
		return nil //nolint:nilerr // reading says why
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return errLink
	case !info.IsDir():
		return errNoDirectory
	}
	return nil
}

// vacate takes away what stands in the place of the version's directory and is none.
func (sl Slot) vacate() (done bool, err error) {
	var whole *Damage
	if err = sl.place(); err == nil || errors.As(err, &whole) {
		return false, err
	}
	return true, sl.d.root.Remove(sl.rel)
}

// Read returns the receipt, or an error that matches ErrNotInstalled.
func (sl Slot) Read() (Receipt, error) {
	if err := sl.place(); err != nil {
		return Receipt{}, err
	}
	b, err := atomicfile.Read(sl.d.Path(sl.rel, receiptFile), maxReceipt)
	if errors.Is(err, fs.ErrNotExist) {
		return Receipt{}, ErrNotInstalled
	}
	if err != nil {
		return Receipt{}, err
	}
	var r Receipt
	if err := strictjson.Decode(b, maxReceipt, &r); err != nil {
		return Receipt{}, fmt.Errorf("read receipt: %w", err)
	}
	if r.Format != receiptFormat {
		return Receipt{}, fmt.Errorf("read receipt: %w: format %d", ErrFormat, r.Format)
	}
	if path.Join(r.Name, r.Version) != sl.Name() || r.Directory == "" || strings.ContainsAny(r.Directory, `/\.`) {
		return Receipt{}, errors.New("read receipt: it belongs to something else")
	}
	return r, nil
}

// Publish makes the staged directory current and everything durable. Until the
// receipt is renamed into place the previous one holds; a crash in between leaves an
// orphan. The lock of the owner is held.
func (sl Slot) Publish(g *Staging, r Receipt) error {
	r.Format, r.Directory = receiptFormat, random()
	if _, err := sl.vacate(); err != nil {
		return err
	}
	if err := sl.d.root.MkdirAll(sl.rel, 0o700); err != nil {
		return err
	}
	if err := sl.d.root.Rename(g.rel, path.Join(sl.rel, r.Directory)); err != nil {
		return err
	}
	failpoint.Hit("placed")
	for dir := sl.rel; dir != "."; dir = path.Dir(dir) {
		if err := atomicfile.SyncDir(sl.d.Path(dir)); err != nil {
			return err
		}
	}
	if err := sl.clear(); err != nil {
		return err
	}
	if err := sl.write(r); err != nil {
		return err
	}
	failpoint.Hit("published")
	if err := sl.sweep(); err != nil {
		sl.d.log.Warn().Err(err).Msg("store-sweep")
	}
	return nil
}

// clear takes a directory away that is in the place of the receipt.
func (sl Slot) clear() error {
	rel := path.Join(sl.rel, receiptFile)
	if info, err := sl.d.root.Lstat(rel); err != nil || !info.IsDir() {
		return nil //nolint:nilerr // what it is shows when it is replaced or removed
	}
	return artifact.Remove(sl.d.root, rel)
}

func (sl Slot) write(r Receipt) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(sl.d.Path(sl.rel, receiptFile), append(b, '\n'))
}

// Supersede marks what is current as superseded, or takes that back; Sweep then removes
// what is, once nobody uses it. The lock of the owner is held.
func (sl Slot) Supersede(is bool) error {
	r, err := sl.Read()
	if err != nil || r.Superseded == is {
		return err
	}
	r.Superseded = is
	if err := sl.write(r); err != nil {
		return err
	}
	failpoint.Hit("superseded")
	return nil
}

// Sweep removes what is not current, or superseded, and that nobody uses. The lock of
// the owner is held.
func (sl Slot) Sweep() error {
	err := sl.sweep()
	sl.d.DropIfEmpty(path.Dir(sl.rel))
	return err
}

// Retire makes nothing current, whether what is can be read or not. The lock of the
// owner is held.
func (sl Slot) Retire() error {
	if done, err := sl.vacate(); done || err != nil {
		if err == nil {
			err = atomicfile.SyncDir(sl.d.Path(path.Dir(sl.rel)))
		}
		return err
	}
	if err := sl.clear(); err != nil {
		return err
	}
	if err := sl.d.root.Remove(path.Join(sl.rel, receiptFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := atomicfile.SyncDir(sl.d.Path(sl.rel)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return sl.sweep()
}

// Name says which slot it is: "KEY/VERSION".
func (sl Slot) Name() string {
	return path.Join(path.Base(path.Dir(sl.rel)), path.Base(sl.rel))
}

// Tree is the absolute path of something in the directory that r names.
func (sl Slot) Tree(r Receipt, rel ...string) string {
	return sl.d.Path(append([]string{sl.rel, r.Directory}, rel...)...)
}

// Holds tells whether a tree in the directory that r names is whole: it can be read, and
// digest is its tree digest.
func (sl Slot) Holds(r Receipt, tree, digest string, l artifact.Limits) bool {
	if digest == "" {
		return false
	}
	snap, err := artifact.Open(sl.Tree(r, tree), l)
	return err == nil && snap.Digest() == digest
}

// sweep removes the directories that are not current, or superseded, and that nobody
// uses, and the slot itself if nothing is left. The lock of the owner is held.
func (sl Slot) sweep() error {
	return (&collector{d: sl.d, remove: true}).slot(sl)
}

// RetireUnused makes nothing current, if no process uses what is and unused, which is
// asked while none can begin to, says that nothing needs it; remove false only asks.
// The lock of the owner is held.
func (sl Slot) RetireUnused(remove bool, unused func(Receipt) (bool, error)) (g Garbage, ok bool, err error) {
	r, err := sl.Read()
	if err != nil {
		return Garbage{}, false, err
	}
	l, err := filelock.Try(sl.d.Path(sl.rel, r.Directory, useFile))
	if errors.Is(err, filelock.ErrHeld) {
		return Garbage{}, false, nil
	}
	if err != nil {
		return Garbage{}, false, err
	}
	if ok, err = unused(r); err != nil || !ok {
		return Garbage{}, false, errors.Join(err, l.Close())
	}
	if g, err = sl.d.weigh(sl.rel); err != nil || !remove {
		return g, err == nil, errors.Join(err, l.Close())
	}
	err = errors.Join(sl.Retire(), l.Close()) // the files go once our own lock has
	return g, err == nil, errors.Join(err, sl.sweep())
}

// useTries and usePause bound how long Use waits for RetireUnused to make up its mind.
const (
	useTries = 200
	usePause = 10 * time.Millisecond
)

// Use returns the current receipt and a lock that keeps its directory on disk.
func (sl Slot) Use() (Receipt, *filelock.Lock, error) {
	for tries := 0; ; tries++ {
		r, err := sl.Read()
		if err != nil {
			return Receipt{}, nil, err
		}
		l, err := filelock.TryShared(sl.d.Path(sl.rel, r.Directory, useFile))
		again, readErr := sl.Read()
		switch {
		case readErr != nil:
			return Receipt{}, nil, errors.Join(readErr, closeIf(l))
		case again.Directory != r.Directory: // replaced meanwhile
			if err := closeIf(l); err != nil {
				return Receipt{}, nil, err
			}
		case errors.Is(err, filelock.ErrHeld) && tries < useTries:
			<-time.After(usePause)
		case err != nil:
			return Receipt{}, nil, err
		default:
			return r, l, nil
		}
	}
}

func closeIf(l *filelock.Lock) error {
	if l == nil {
		return nil
	}
	return l.Close()
}
