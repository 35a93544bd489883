package sealed

import (
	"errors"
	"os"
	"runtime"

	"github.com/zalando/go-keyring"
)

// keyringService is the part of the system's keyring that is used.
type keyringService interface {
	Set(id, value string) error
	Get(id string) (string, error)
	Delete(id string) error // nothing is no error
}

// systemKeyring is the one of the operating system: Keychain, Credential Manager,
// or the Secret Service on the session bus.
type systemKeyring struct{}

const keyringName = "lend"

// reachable keeps the library from starting a bus of its own.
func reachable() error {
	switch runtime.GOOS {
	case "darwin", "windows":
		return nil
	}
	if os.Getenv("DBUS_SESSION_BUS_ADDRESS") == "" { //nolint:forbidigo // the library asks nothing else
		return errors.New("no session bus: DBUS_SESSION_BUS_ADDRESS is not set")
	}
	return nil
}

func (systemKeyring) Set(id, value string) error {
	if err := reachable(); err != nil {
		return err
	}
	return keyring.Set(keyringName, id, value)
}

func (systemKeyring) Get(id string) (string, error) {
	if err := reachable(); err != nil {
		return "", err
	}
	return keyring.Get(keyringName, id)
}

func (systemKeyring) Delete(id string) error {
	if err := reachable(); err != nil {
		return err
	}
	if err := keyring.Delete(keyringName, id); err != nil && !errors.Is(err, keyring.ErrNotFound) {
		return err
	}
	return nil
}
