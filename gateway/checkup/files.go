package checkup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"

	"github.com/lendcli/lend/gateway/ownerfile"
	look "github.com/lendcli/lend/localhost/checkup"
)

func (k *checks) identity(context.Context) look.Row {
	return keyRow(k.Identity, look.Row{
		Status: look.Fail, Detail: "there is no identity, so no gateway can start and no lease can be used", Fix: "lend init",
	})
}

func (k *checks) owner(context.Context) look.Row {
	return keyRow(k.Owner, look.Row{Status: look.Warn, Detail: "there is no owner's key, so no lease can be signed here", Fix: "lend init"})
}

func keyRow(file string, absent look.Row) look.Row {
	_, err := ownerfile.LoadKey(file)
	var unsafe *ownerfile.UnsafeError
	switch {
	case err == nil:
		return look.Row{Status: look.Pass, Detail: "only you can read it"}
	case errors.Is(err, os.ErrNotExist):
		return absent
	case errors.As(err, &unsafe):
		return failed(err, unsafe.Hint)
	}
	return failed(err, "restore it from a copy; leases name this key")
}

// directories looks at each one and at what is above it: who may replace a directory
// above, may replace what is in it.
func (k *checks) directories(context.Context) []look.Row {
	var rows []look.Row
	seen := map[string]bool{}
	looked := map[string]bool{}
	for _, dir := range k.Directories {
		if looked[dir] {
			continue
		}
		looked[dir] = true
		if row, bad := directory(dir); bad {
			rows = append(rows, row)
		}
		for up := filepath.Dir(dir); !seen[up]; up = filepath.Dir(up) {
			seen[up] = true
			var unsafe *ownerfile.UnsafeError
			if errors.As(ownerfile.CheckDirectory(up), &unsafe) {
				rows = append(rows, failed(unsafe, unsafe.Hint))
			}
		}
	}
	if len(rows) == 0 {
		rows = append(rows, look.Row{Status: look.Pass, Detail: "only you can write them, and what is above them"})
	}
	return rows
}

func directory(dir string) (look.Row, bool) {
	info, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return look.Row{Subject: dir, Status: look.Warn, Detail: "it is not there yet", Fix: "lend init"}, true
	}
	if err != nil {
		return failed(err, "chmod 700 "+filepath.Dir(dir)), true
	}
	if !info.IsDir() {
		return look.Row{Subject: dir, Status: look.Fail, Detail: "it is not a directory"}, true
	}
	var unsafe *ownerfile.UnsafeError
	if err := ownerfile.CheckDirectory(dir); errors.As(err, &unsafe) {
		return failed(unsafe, unsafe.Hint), true
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return look.Row{Subject: dir, Status: look.Warn, Detail: "others may look into it", Fix: "chmod 700 " + dir}, true
	}
	return look.Row{}, false
}
