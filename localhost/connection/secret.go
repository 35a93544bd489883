package connection

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/name"
)

// MaxSecretBytes bounds one secret.
const MaxSecretBytes = 64 << 10

const masked = "[secret]"

// Secret is a value that shows itself as "[secret]" wherever it is formatted,
// logged or encoded. Only Environment reads it.
type Secret struct{ value string }

// String returns "[secret]".
func (Secret) String() string { return masked }

// Format writes "[secret]" for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, masked) }

// MarshalText returns "[secret]".
func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }

// MarshalJSON returns "[secret]" as a JSON string.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + masked + `"`), nil }

// SecretStatus tells about a secret, without its value.
type SecretStatus struct {
	Name     string
	Variable string
	Set      bool
	Owner    bool // declared by the owner, not by the release
}

// SetSecret stores what r holds, at most 64 KiB without one line end at its end.
// The secret is one that d declares; where variable is not empty, the owner
// declares it here. ErrNotFound means that nobody declares it.
func (c *Connection) SetSecret(d Declared, secret name.Label, variable string, r io.Reader) error {
	value, err := readSecret(r)
	if err != nil {
		return fmt.Errorf("set secret %s: %w", secret, err)
	}
	if secret.IsZero() {
		return fmt.Errorf("set secret: name is missing: %w", ErrInvalid)
	}
	if variable != "" {
		err = c.declare(d, secret.String(), variable)
	} else {
		err = c.declares(d, secret.String())
	}
	if err != nil {
		return fmt.Errorf("set secret %s: %w", secret, err)
	}
	if err := c.sealed.Put(c.place(secret), value); err != nil {
		return fmt.Errorf("set secret %s: %w", secret, err)
	}
	if err := c.removePlain(secret.String()); err != nil {
		return fmt.Errorf("set secret %s: %w", secret, err)
	}
	return nil
}

// readSecret reads a bounded value; its errors never hold it.
func readSecret(r io.Reader) ([]byte, error) {
	value, err := io.ReadAll(io.LimitReader(r, MaxSecretBytes+3))
	if err != nil {
		return nil, fmt.Errorf("read value: %w", err)
	}
	value = bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))
	switch {
	case len(value) == 0:
		return nil, fmt.Errorf("value is empty: %w", ErrInvalid)
	case len(value) > MaxSecretBytes:
		return nil, fmt.Errorf("value has more than %d bytes: %w", MaxSecretBytes, ErrInvalid)
	case bytes.IndexByte(value, 0) >= 0:
		return nil, fmt.Errorf("value holds a NUL: %w", ErrInvalid)
	}
	return value, nil
}

// declare makes secret one of the owner's, carried by variable.
func (c *Connection) declare(d Declared, secret, variable string) error {
	for _, s := range d.Secrets {
		if strings.EqualFold(s.Name, secret) {
			if s.Name == secret && s.Variable == variable {
				return nil
			}
			return fmt.Errorf("the release declares it already: %w", ErrExists)
		}
		if foldName(s.Variable) == foldName(variable) {
			return fmt.Errorf("variable %s: %w", name.Quote(variable), ErrConflict)
		}
	}
	for _, s := range d.Settings {
		if foldName(s.Variable) == foldName(variable) {
			return fmt.Errorf("variable %s: %w", name.Quote(variable), ErrConflict)
		}
	}
	return c.update(func(cfg *Config) error {
		if cfg.Secrets == nil {
			cfg.Secrets = make(map[string]string)
		}
		cfg.Secrets[secret] = variable
		return nil
	})
}

func (c *Connection) declares(d Declared, secret string) error {
	cfg, err := c.Config()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(statuses(d, cfg), func(s SecretStatus) bool { return s.Name == secret }) {
		return fmt.Errorf("neither the release nor the owner declares it: %w", ErrNotFound)
	}
	return nil
}

// Secrets lists what the release and the owner declare, sorted by name, without
// any value.
func (c *Connection) Secrets(d Declared) ([]SecretStatus, error) {
	cfg, err := c.Config()
	if err != nil {
		return nil, err
	}
	all := statuses(d, cfg)
	for i := range all {
		if all[i].Set, err = c.isSet(all[i].Name); err != nil {
			return nil, fmt.Errorf("list secrets: %w", err)
		}
	}
	return all, nil
}

func statuses(d Declared, cfg Config) []SecretStatus {
	all := make([]SecretStatus, 0, len(d.Secrets)+len(cfg.Secrets))
	for _, s := range d.Secrets {
		all = append(all, SecretStatus{Name: s.Name, Variable: s.Variable})
	}
	for secret, variable := range cfg.Secrets {
		if slices.ContainsFunc(d.Secrets, func(s Declaration) bool { return strings.EqualFold(s.Name, secret) }) {
			continue // a later release declares it as well, and wins
		}
		all = append(all, SecretStatus{Name: secret, Variable: variable, Owner: true})
	}
	slices.SortFunc(all, func(a, b SecretStatus) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Missing names the declared secrets that have no value, sorted.
func (c *Connection) Missing(d Declared) ([]string, error) {
	all, err := c.Secrets(d)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, s := range all {
		if !s.Set {
			missing = append(missing, s.Name)
		}
	}
	return missing, nil
}

// DeleteSecret removes a secret's value, and the owner's declaration of it. It is
// ErrNotFound if there is neither.
func (c *Connection) DeleteSecret(secret name.Label) error {
	had, err := c.isSet(secret.String())
	if err != nil {
		return fmt.Errorf("delete secret %s: %w", secret, err)
	}
	if err := c.sealed.Delete(c.place(secret)); err != nil && !errors.Is(err, sealed.ErrNotFound) {
		return fmt.Errorf("delete secret %s: %w", secret, err)
	}
	if err := c.removePlain(secret.String()); err != nil {
		return fmt.Errorf("delete secret %s: %w", secret, err)
	}
	err = c.update(func(cfg *Config) error {
		if _, ok := cfg.Secrets[secret.String()]; !ok && !had {
			return ErrNotFound
		}
		delete(cfg.Secrets, secret.String())
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete secret %s: %w", secret, err)
	}
	return nil
}

// secret reads one value; ok is false if it is not set.
func (c *Connection) secret(secret string) (value Secret, ok bool, err error) {
	label, err := name.ParseLabel(secret)
	if err != nil {
		return Secret{}, false, fmt.Errorf("read secret %s: %w: %w", name.Quote(secret), ErrInvalid, err)
	}
	data, err := c.sealed.Get(c.place(label))
	if errors.Is(err, sealed.ErrNotFound) {
		return Secret{}, false, c.refusePlain(secret)
	}
	if err != nil {
		return Secret{}, false, fmt.Errorf("read secret %s: %w", name.Quote(secret), err)
	}
	return Secret{value: string(data)}, true, nil
}

// isSet tells whether a secret has a value, without opening it.
func (c *Connection) isSet(secret string) (bool, error) {
	label, err := name.ParseLabel(secret)
	if err != nil {
		return false, fmt.Errorf("secret %s: %w: %w", name.Quote(secret), ErrInvalid, err)
	}
	set, err := c.sealed.Has(c.place(label))
	if set || err != nil {
		return set, err
	}
	return c.hasPlain(secret)
}

func (c *Connection) place(secret name.Label) sealed.Place {
	return sealed.Place{Connector: c.key, Connection: c.id, Name: secret}
}
