package depot

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/lendcli/lend/protocol/name"
)

// Damage is something of the store that cannot be read or understood: nobody can tell
// what it is, or what it needs. It is an error about exactly one Connector or runtime,
// and says nothing of the others.
type Damage struct { //nolint:errname // a finding first, which is shown beside what is whole
	Kind    string // Connectors, Runtimes or Downloads
	Owner   string // the directory of a Connector or runtime, as it is on the disk
	Version string // that of a version; "": nothing of the owner can be listed
	Err     error  // why; for the owner alone, since it can hold paths
}

// Error says what is damaged, and why.
func (d *Damage) Error() string {
	return fmt.Sprintf("%s %s: %v", strings.TrimSuffix(d.Kind, "s"), d.Name(), d.Err)
}

// Unwrap returns Err.
func (d *Damage) Unwrap() error { return d.Err }

// Name is the owner and the version, made harmless to show.
func (d *Damage) Name() string { return name.Show(strings.TrimSpace(d.Owner + " " + d.Version)) }

// Of names the Connector and the version. The key is zero for what is named like no
// Connector or no version of one, and the version where it is all of a Connector.
func (d *Damage) Of() (key name.ConnectorKey, version name.Version) {
	key, err := name.ParseConnectorKey(d.Owner)
	if d.Kind != Connectors || err != nil || d.Version == "" {
		return key, version
	}
	if version, err = name.ParseVersion(d.Version); err != nil {
		return name.ConnectorKey{}, version
	}
	return key, version
}

// Passing tells whether the system could not read it at this moment, for want of memory
// or descriptors: it may be whole.
func (d *Damage) Passing() bool {
	var errno syscall.Errno
	return errors.As(d.Err, &errno) && slices.Contains([]syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.EINTR,
	}, errno)
}

var (
	errLink        = errors.New("a link is in its place")
	errNoDirectory = errors.New("what is in its place is no directory")
	errGone        = errors.New("the directory that its receipt names is not there")
)

// Slots are the places of all versions of a kind, in lexical order, and what cannot be
// listed of it. The error is for all of the kind.
func (d *Depot) Slots(kind string) (all []Slot, damaged []*Damage, err error) {
	owners, links, err := d.entries(kind)
	if err != nil {
		return nil, nil, fmt.Errorf("list %s: %w", kind, err)
	}
	for _, owner := range links {
		damaged = append(damaged, &Damage{Kind: kind, Owner: owner, Err: errLink})
	}
	for _, owner := range owners {
		slots, bad := d.SlotsOf(kind, owner)
		all, damaged = append(all, slots...), append(damaged, bad...)
	}
	return all, damaged, nil
}

// Link tells whether all of a Connector or runtime is a link, which Unlink takes away.
func (d *Damage) Link() bool { return d.Version == "" && errors.Is(d.Err, errLink) }

// Unlink takes away what is in the place of a Connector or runtime if it is a link, and
// nothing that it leads to. The lock of the owner is held.
func (d *Depot) Unlink(kind, owner string) (gone bool, err error) {
	at := path.Join(kind, owner)
	if info, err := d.root.Lstat(at); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return false, nil //nolint:nilerr // it is no link
	}
	if err := d.root.Remove(at); err != nil {
		return false, err
	}
	return true, nil
}

// SlotsOf are the places of the versions of one owner, and what cannot be listed of
// them. An owner that is not there has none.
func (d *Depot) SlotsOf(kind, owner string) (all []Slot, damaged []*Damage) {
	versions, links, err := d.entries(path.Join(kind, owner))
	if info, look := d.root.Lstat(path.Join(kind, owner)); look == nil && info.Mode()&fs.ModeSymlink != 0 {
		err = errLink // wherever it leads, if anywhere
	}
	if err != nil {
		return nil, []*Damage{{Kind: kind, Owner: owner, Err: err}}
	}
	for _, v := range links {
		damaged = append(damaged, &Damage{Kind: kind, Owner: owner, Version: v, Err: errLink})
	}
	for _, v := range versions {
		all = append(all, d.Slot(kind, owner, v))
	}
	return all, damaged
}

// entries names the directories in a directory, and the links that stand where one
// would. Hidden entries and other files are none of ours.
func (d *Depot) entries(rel string) (dirs, links []string, err error) {
	entries, err := fs.ReadDir(d.root.FS(), rel)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			dirs = append(dirs, e.Name())
		case e.Type()&fs.ModeSymlink != 0:
			links = append(links, e.Name())
		}
	}
	return dirs, links, err
}

// Damaged is what an error says of the slot.
func (sl Slot) Damaged(err error) *Damage {
	d := &Damage{Kind: path.Dir(path.Dir(sl.rel)), Owner: sl.Owner(), Version: sl.Version(), Err: err}
	if whole := (*Damage)(nil); errors.As(err, &whole) && whole.Kind == d.Kind && whole.Owner == d.Owner {
		return whole // of all its versions
	}
	return d
}

// Owner is the directory of the Connector or runtime.
func (sl Slot) Owner() string { return path.Base(path.Dir(sl.rel)) }

// Version is the directory of the version.
func (sl Slot) Version() string { return path.Base(sl.rel) }
