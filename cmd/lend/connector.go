package main

import (
	"errors"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/download"
	"github.com/lendcli/lend/localhost/download/remote"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) connectorCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "connector",
		Short: "install Connectors and give them their secrets",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(
		a.connectorNewCommand(), a.connectorAddCommand(), a.connectorUpdateCommand(), a.connectorListCommand(), a.connectorShowCommand(),
		a.connectorVerifyCommand(), a.connectorSkillsCommand(), a.connectorTryCommand(), a.connectorShimCommand(), a.connectorSecretCommand(), a.connectorSettingCommand(),
		a.connectorLoginCommand(), a.connectorDisableCommand(), a.connectorEnableCommand(), a.connectorRemoveCommand(), a.connectorGCCommand(),
	)
	return c
}

// withStore runs f on the store, with a transport for what npm and Node must do.
func (a *app) withStore(registry string, f func(*install.Store) error) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	transport := process.New(process.Config{})
	s, err := a.openStore(p, transport, registry, zerolog.Nop())
	if err != nil {
		return joinClose(err, transport.Close)
	}
	return joinClose(storeError(f(s)), s.Close, transport.Close)
}

func joinClose(err error, closers ...func() error) error {
	for _, c := range closers {
		err = errors.Join(err, c())
	}
	return err
}

// hintInstalled names the Connectors and versions that there are.
const hintInstalled = "lend connector list"

// storeError adds the next command to what the store refuses.
func storeError(err error) error {
	var damage *install.Damage
	var known *hinted
	var fixable interface {
		error
		Fix() string
	}
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, syscall.ENOSPC):
		return &hinted{err: err, hint: diskFull}
	case errors.As(err, &fixable): // what is wanted of it is damaged, or a lock is blocked
		return &hinted{err: err, hint: fixable.Fix()}
	case errors.As(err, &damage):
		return &hinted{err: err, hint: damageHint(damage)}
	case errors.Is(err, install.ErrNoRegistry):
		return &hinted{err: err, hint: "npm's own setting is shown by: npm config get registry"}
	case errors.Is(err, install.ErrNoRuntime):
		return &hinted{err: err, hint: "lend runtime list, and lend runtime add --help"}
	case errors.Is(err, install.ErrNoArchive), errors.Is(err, remote.ErrRefused):
		return &hinted{err: err, hint: "give the file: --archive FILE"}
	case errors.Is(err, remote.ErrFailed):
		return &hinted{err: err, hint: "the same command later; or give the file: --archive FILE"}
	case errors.Is(err, npm.ErrIntegrity):
		return &hinted{err: err, hint: "lend connector gc, which empties npm's cache, then the same command again; or another --registry: this one has other bytes than are pinned"}
	case errors.Is(err, download.ErrMismatch):
		return &hinted{err: err, hint: "another file is there now than the manifest pins: a newer manifest, or that file: --archive FILE"}
	case errors.Is(err, install.ErrConflict):
		return &hinted{err: err, hint: "lend connector add --replace …"}
	case errors.Is(err, install.ErrNotInstalled):
		return &hinted{err: err, hint: "lend connector list"}
	case errors.Is(err, connection.ErrUnsafe):
		return &hinted{err: err, hint: "lend doctor"}
	default:
		return signatureError(err)
	}
}

type shownRelease struct {
	Key          string   `json:"key"`
	Version      string   `json:"version"`
	DisplayName  string   `json:"displayName"`
	Kind         string   `json:"kind"`
	Digest       string   `json:"digest"`
	ContractHash string   `json:"contractHash"`
	Runtime      string   `json:"runtime,omitempty"`
	Command      string   `json:"command"`
	Commands     []string `json:"commands"`
	Secrets      []string `json:"secrets"`
	HasScripts   bool     `json:"hasScripts"`
}

func releaseShown(r install.Release) shownRelease {
	s := shownRelease{
		Key: r.Manifest.Key.String(), Version: r.Manifest.Version.String(), DisplayName: r.Manifest.DisplayName,
		Kind: string(r.Manifest.CLI.Kind), Digest: r.Digest, ContractHash: r.ContractHash, Runtime: r.Runtime,
		Command: r.Contract.Command, Commands: []string{}, Secrets: []string{}, HasScripts: r.HasScripts,
	}
	for _, c := range r.Contract.Commands {
		s.Commands = append(s.Commands, c.Name.String())
	}
	for _, secret := range r.Manifest.Secrets {
		s.Secrets = append(s.Secrets, secret.Name)
	}
	return s
}

// release finds the installed release that a command line means.
func (a *app) release(s *install.Store, key, version string) (install.Release, error) {
	k, err := name.ParseConnectorKey(key)
	if err != nil {
		return install.Release{}, &usageError{err: err, hint: hintInstalled}
	}
	v, err := a.chooseVersion(k, version)
	if err != nil {
		return install.Release{}, err
	}
	return s.Release(k, v)
}
