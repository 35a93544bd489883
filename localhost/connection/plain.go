package connection

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/name"
)

// Before secrets were sealed, each was a file secrets/NAME.secret of its connection
// that began with this line. Such a file is never used: it is sealed, or refused.
const (
	plainHeader = "lend-secret 1 plain\n"
	plainSuffix = ".secret"
)

func (c *Connection) plainDir() string { return filepath.Join(c.dir, "secrets") }

func (c *Connection) plainPath(secret string) string {
	return filepath.Join(c.plainDir(), secret+plainSuffix)
}

func (c *Connection) hasPlain(secret string) (bool, error) {
	_, err := os.Lstat(c.plainPath(secret))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// refusePlain is ErrPlain if the secret is set in the old form alone.
func (c *Connection) refusePlain(secret string) error {
	has, err := c.hasPlain(secret)
	if err == nil && has {
		err = ErrPlain
	}
	if err != nil {
		return fmt.Errorf("read secret %s: %w", name.Quote(secret), err)
	}
	return nil
}

func (c *Connection) removePlain(secret string) error {
	err := os.Remove(c.plainPath(secret))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return atomicfile.SyncDir(c.plainDir())
}

// SealPlain seals the secrets that an earlier version stored as they are, and tells
// how many there were. Each is sealed durably before its file goes, so that it may be
// stopped at any moment and called again. What was set since stays.
func (r *Root) SealPlain() (int, error) {
	connectors, err := os.ReadDir(filepath.Join(r.dir, connectorsDir))
	if err != nil {
		return 0, fmt.Errorf("seal secrets: %w", err)
	}
	n := 0
	for _, e := range connectors {
		key, err := name.ParseConnectorKey(e.Name())
		if err != nil {
			continue
		}
		all, err := r.List(key)
		if err != nil {
			return n, fmt.Errorf("seal secrets: %w", err)
		}
		for _, c := range all {
			m, err := c.sealPlain()
			if n += m; err != nil {
				return n, fmt.Errorf("seal secrets of %s %s: %w", c.key, c.id, err)
			}
		}
	}
	return n, nil
}

func (c *Connection) sealPlain() (n int, err error) {
	entries, err := os.ReadDir(c.plainDir())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		secret, ok := strings.CutSuffix(e.Name(), plainSuffix)
		if !ok {
			continue
		}
		label, err := name.ParseLabel(secret)
		if err != nil {
			return n, fmt.Errorf("secret %s: %w: %w", name.Quote(secret), ErrInvalid, err)
		}
		if err := c.sealOne(label); err != nil {
			return n, fmt.Errorf("secret %s: %w", name.Quote(secret), err)
		}
		n++
	}
	return n, nil
}

func (c *Connection) sealOne(secret name.Label) error {
	has, err := c.sealed.Has(c.place(secret))
	if err != nil {
		return err
	}
	if !has {
		data, err := readPrivate(c.plainPath(secret.String()), MaxSecretBytes+len(plainHeader))
		if err != nil {
			return err
		}
		value, ok := bytes.CutPrefix(data, []byte(plainHeader))
		if !ok || len(value) == 0 {
			return fmt.Errorf("unknown format: %w", ErrInvalid)
		}
		if err := c.sealed.Put(sealed.Place{Connector: c.key, Connection: c.id, Name: secret}, value); err != nil {
			return err
		}
	}
	return c.removePlain(secret.String())
}
