package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/adrg/xdg"

	"github.com/lendcli/lend/gateway/ownerfile"
)

// paths says where everything is: all of it below LEND_DIR or --dir if set, else
// in the directories of the XDG specification.
type paths struct {
	config string // policy.yaml
	state  string // keys, ledger, Connectors, connections
	socket string // of the running gateway
}

func (a *app) paths() (paths, error) {
	dir := a.dir
	if dir == "" {
		dir = os.Getenv("LEND_DIR")
	}
	if dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return paths{}, fmt.Errorf("find LEND_DIR: %w", err)
		}
		return paths{config: abs, state: abs, socket: filepath.Join(abs, "run", "admin.sock")}, nil
	}
	p := paths{
		config: filepath.Join(xdg.ConfigHome, "lend"),
		state:  filepath.Join(xdg.StateHome, "lend"),
	}
	p.socket = filepath.Join(p.state, "run", "admin.sock")
	return p, nil
}

func (p paths) policy() string      { return filepath.Join(p.config, "policy.yaml") }
func (p paths) schema() string      { return filepath.Join(p.config, "policy.schema.json") }
func (p paths) identityKey() string { return filepath.Join(p.state, "identity.pem") }
func (p paths) ownerKey() string    { return filepath.Join(p.state, "owner.pem") }
func (p paths) ledger() string      { return filepath.Join(p.state, "ledger") }
func (p paths) cancels() string     { return filepath.Join(p.state, "cancels.json") }
func (p paths) store() string       { return filepath.Join(p.state, "connectors") }
func (p paths) connections() string { return filepath.Join(p.state, "connections") }
func (p paths) revocations() string { return filepath.Join(p.state, "revocations") }
func (p paths) lockdown() string    { return filepath.Join(p.state, "lockdown") }
func (p paths) issued() string      { return filepath.Join(p.state, "issued") }
func (p paths) broker() string      { return filepath.Join(filepath.Dir(p.socket), "broker.sock") }
func (p paths) shims() string       { return filepath.Join(p.state, "shims") }

// makePrivate makes the directories of an initialised machine.
func (p paths) makePrivate() error {
	for _, dir := range []string{p.config, p.state, p.ledger(), p.store(), p.connections(), filepath.Dir(p.socket)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
		if !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
			return usagef("chmod 700 "+dir, "%s must be a directory that only you can write", dir)
		}
		if err := ownerfile.CheckDirectory(dir); err != nil {
			return err
		}
	}
	return nil
}
