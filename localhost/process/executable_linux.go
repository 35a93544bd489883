package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/localhost/process/supervise"
)

// maxShim bounds the file that is taken for a lend-shim, in bytes.
const maxShim = 64 << 20

// executable is what supervisors are started from.
type executable struct {
	mu   sync.Mutex // guards what follows
	shim string     // "" means this executable
	id   fileID
}

// fileID changes when the file does.
type fileID struct {
	dev, ino     uint64
	size         int64
	mtime, ctime syscall.Timespec
}

func (e *executable) find(shim string, log zerolog.Logger) {
	if shim == "" {
		self, err := os.Executable()
		if err != nil {
			return
		}
		shim = filepath.Join(filepath.Dir(self), "lend-shim")
	}
	id, err := sameBuild(shim)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			log.Warn().Err(err).Msg("lend-shim not used")
		}
		return
	}
	e.shim, e.id = shim, id
}

// path returns what to execute now: the shim while it is the file that was
// checked, else this executable, whatever has become of its name.
func (e *executable) path() (path string, shim bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shim != "" {
		if id, err := identify(e.shim); err == nil && id == e.id {
			return e.shim, true, nil
		}
	}
	if !mainCalled.Load() {
		return "", false, ErrMain
	}
	return "/proc/self/exe", false, nil
}

// reject makes path choose this executable from now on.
func (e *executable) reject() {
	e.mu.Lock()
	e.shim = ""
	e.mu.Unlock()
}

func identify(path string) (fileID, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return fileID{}, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.Mode().IsRegular() || fi.Mode().Perm()&0o022 != 0 || fi.Size() > maxShim {
		return fileID{}, fmt.Errorf("check %s: not a regular file that only its owner may write", path)
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fileID{}, fmt.Errorf("check %s: owned by another user", path)
	}
	return fileID{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}, nil
}

// sameBuild checks that the file carries this supervisor's source; see
// supervise.Sources. It is not run to find out.
func sameBuild(path string) (fileID, error) {
	id, err := identify(path)
	if err != nil {
		return fileID{}, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fileID{}, err
	}
	for _, s := range supervise.Sources() {
		if !bytes.Contains(content, []byte(s)) {
			return fileID{}, fmt.Errorf("check %s: another build", path)
		}
	}
	if again, err := identify(path); err != nil || again != id {
		return fileID{}, fmt.Errorf("check %s: changed meanwhile", path)
	}
	return id, nil
}
