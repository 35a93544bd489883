package connection

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/internal/strictjson"
	"github.com/lendcli/lend/protocol/name"
)

// Bounds of a connection's configuration.
const (
	MaxSettings     = 128
	MaxSettingBytes = 8 << 10
	MaxSecrets      = 64
	maxConfigBytes  = 2 << 20
)

const schemaVersion = "1"

// Config is what the owner has decided about one connection. It is what
// connection.json holds.
type Config struct {
	SchemaVersion string `json:"schemaVersion"`
	// Disabled keeps the connection from having routes.
	Disabled bool `json:"disabled,omitempty"`
	// Settings are plain variables, NAME → value, 128 at most, each of 8 KiB at
	// most.
	Settings map[string]string `json:"settings,omitempty"`
	// Secrets are those that the owner declared, name → variable, beside the
	// manifest's; 64 at most.
	Secrets map[string]string `json:"secrets,omitempty"`
	// SharedHome lets all operations work in the connection's own directories, so
	// that what one writes there reaches the next. Else each has a copy; see Dirs.
	SharedHome bool `json:"sharedHome,omitempty"`
}

// Config reads the connection's configuration. A connection without a file has
// the zero Config.
func (c *Connection) Config() (Config, error) {
	data, err := readPrivate(c.configPath(), maxConfigBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{SchemaVersion: schemaVersion}, nil
	}
	if err != nil {
		return Config{}, fmt.Errorf("read connection settings: %w", err)
	}
	var cfg Config
	if err := strictjson.Decode(data, maxConfigBytes, &cfg); err != nil {
		return Config{}, fmt.Errorf("read connection settings: %w: %w", ErrInvalid, err)
	}
	if err := cfg.check(); err != nil {
		return Config{}, fmt.Errorf("read connection settings: %w", err)
	}
	return cfg, nil
}

func (c *Connection) configPath() string { return filepath.Join(c.dir, "connection.json") }

// SetDisabled decides whether the connection has routes: the next Reconcile acts
// on it, and Environment refuses at once.
func (c *Connection) SetDisabled(disabled bool) error {
	return c.update(func(cfg *Config) error {
		cfg.Disabled = disabled
		return nil
	})
}

// SetSharedHome decides for later starts whether operations share the connection's
// directories: for a CLI that has to keep what it writes, such as login tokens that
// it renews. Whoever may run one command can then steer the next.
func (c *Connection) SetSharedHome(shared bool) error {
	return c.update(func(cfg *Config) error {
		cfg.SharedHome = shared
		return nil
	})
}

// SetSetting sets a plain variable for later starts. The name is that of a
// setting that d declares, or of a variable. It is ErrReserved for a variable
// that may not be set, ErrConflict for one that carries a secret.
func (c *Connection) SetSetting(d Declared, setting, value string) error {
	variable := d.settingVariable(setting)
	return c.update(func(cfg *Config) error {
		if secretVariables(d, *cfg)[foldName(variable)] {
			return fmt.Errorf("variable %s carries a secret: %w", name.Quote(variable), ErrConflict)
		}
		if cfg.Settings == nil {
			cfg.Settings = make(map[string]string)
		}
		for old := range cfg.Settings {
			if foldName(old) == foldName(variable) {
				delete(cfg.Settings, old)
			}
		}
		cfg.Settings[variable] = value
		return nil
	})
}

// UnsetSetting removes what SetSetting set. It is ErrNotFound if it is not set.
func (c *Connection) UnsetSetting(d Declared, setting string) error {
	variable := d.settingVariable(setting)
	return c.update(func(cfg *Config) error {
		if _, ok := cfg.Settings[variable]; !ok {
			return fmt.Errorf("setting %s: %w", name.Quote(setting), ErrNotFound)
		}
		delete(cfg.Settings, variable)
		return nil
	})
}

// update changes the configuration under a lock that other processes respect.
func (c *Connection) update(change func(*Config) error) error {
	if err := c.ensure(); err != nil {
		return fmt.Errorf("change connection settings: %w", err)
	}
	lock, err := lockFile(filepath.Join(c.dir, "lock"))
	if err != nil {
		return fmt.Errorf("change connection settings: %w", err)
	}
	defer func() { _ = lock.Close() }() // closing lets go
	cfg, err := c.Config()
	if err != nil {
		return err
	}
	if err := change(&cfg); err != nil {
		return err
	}
	if err := cfg.check(); err != nil {
		return err
	}
	data, err := json.MarshalIndent(cfg, "", "  ")
	if err != nil {
		return fmt.Errorf("change connection settings: %w", err)
	}
	return atomicfile.Write(c.configPath(), append(data, '\n'))
}

func (cfg Config) check() error {
	switch {
	case cfg.SchemaVersion != schemaVersion:
		return fmt.Errorf("schemaVersion %s is not %q: %w", name.Quote(cfg.SchemaVersion), schemaVersion, ErrInvalid)
	case len(cfg.Settings) > MaxSettings:
		return fmt.Errorf("more than %d settings: %w", MaxSettings, ErrInvalid)
	case len(cfg.Secrets) > MaxSecrets:
		return fmt.Errorf("more than %d secrets: %w", MaxSecrets, ErrInvalid)
	}
	seen := make(map[string]bool)
	for variable, value := range cfg.Settings {
		if err := checkVariable(variable, seen); err != nil {
			return err
		}
		if len(value) > MaxSettingBytes || strings.ContainsRune(value, 0) || !utf8.ValidString(value) {
			return fmt.Errorf("value of %s: want text of at most %d bytes: %w", variable, MaxSettingBytes, ErrInvalid)
		}
	}
	names := make(map[string]bool)
	for secret, variable := range cfg.Secrets {
		if err := checkVariable(variable, seen); err != nil {
			return err
		}
		if _, err := name.ParseLabel(secret); err != nil {
			return fmt.Errorf("secret: %w: %w", ErrInvalid, err)
		}
		if names[strings.ToLower(secret)] {
			return fmt.Errorf("secret %s differs from another only by case: %w", secret, ErrInvalid)
		}
		names[strings.ToLower(secret)] = true
	}
	return nil
}

// checkVariable checks one more variable beside those seen.
func checkVariable(variable string, seen map[string]bool) error {
	switch {
	case !validVariable(variable):
		return fmt.Errorf("variable %s: want letters, digits and '_': %w", name.Quote(variable), ErrInvalid)
	case Reserved(variable):
		return fmt.Errorf("variable %s: %w", variable, ErrReserved)
	case seen[foldName(variable)]:
		return fmt.Errorf("variable %s: %w", variable, ErrConflict)
	}
	seen[foldName(variable)] = true
	return nil
}

// settingVariable returns the variable of a declared setting, or the name itself.
func (d Declared) settingVariable(setting string) string {
	for _, s := range d.Settings {
		if s.Name == setting {
			return s.Variable
		}
	}
	return setting
}

// secretVariables holds the folded names of all variables that carry secrets.
func secretVariables(d Declared, cfg Config) map[string]bool {
	all := make(map[string]bool)
	for _, s := range d.Secrets {
		all[foldName(s.Variable)] = true
	}
	for _, variable := range cfg.Secrets {
		all[foldName(variable)] = true
	}
	return all
}
