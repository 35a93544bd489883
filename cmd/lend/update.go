package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) connectorUpdateCommand() *cobra.Command {
	var version, archive, registry string
	c := &cobra.Command{
		Use:   "update KEY DIRECTORY | ARCHIVE",
		Short: "put another version of a Connector in the place of one",
		Long: `Install another version beside the installed one, verify it, have a running
gateway take it up, and then retire the old one: nothing starts from it any
more, what runs of it ends undisturbed, and its files go when nothing uses them.
If the new version cannot be made the current one, it is taken away again, and
the old one is as it was. The policy names versions exactly: let it name both
before, or callers are refused until it names the new one.

To go back, update to the old version's source. lend connector add installs a
version beside the others and retires none.`,
		Example: `  lend connector update github ./gh-2.41.0
  lend connector update github github-2.41.0.tar.gz --version 2.40.1
  lend connector update tool ./tool-1.1.0 --archive ~/tool-1.1.0.tar.gz`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := replacement(args, version, archive)
			if err != nil {
				return err
			}
			if err := a.finishRemovals(cmd.Context()); err != nil {
				return err
			}
			return a.withStore(registry, func(s *install.Store) error {
				now, from, err := a.update(cmd.Context(), s, u)
				if errors.Is(err, install.ErrSeveral) {
					return &usageError{err: err, hint: "--version VERSION"}
				}
				if err != nil {
					return sourceError(u.Path, err)
				}
				return a.showUpdate(releaseShown(now), from)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&version, "version", "", "which version to replace (default: the only one)")
	f.StringVar(&archive, "archive", "", "the archive that the manifest names, instead of fetching it")
	f.StringVar(&registry, "registry", "", "package registry (default: $NPM_CONFIG_REGISTRY)")
	return c
}

func replacement(args []string, version, archive string) (u install.Replacement, err error) {
	if u.Key, err = name.ParseConnectorKey(args[0]); err != nil {
		return u, &usageError{err: err, hint: hintInstalled}
	}
	if version != "" {
		if u.From, err = name.ParseVersion(version); err != nil {
			return u, &usageError{err: err, hint: hintInstalled}
		}
	}
	if u.Path, err = fullPath(args[1]); err != nil {
		return u, err
	}
	u.Archive, err = fullPath(archive)
	return u, err
}

// fullPath makes a path absolute; "" stays. An address is none, and nothing is fetched from
// it: it may hold a password, too.
func fullPath(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	if strings.Contains(path, "://") {
		return "", usagef("get it, and give the file or directory", "%s is an address, not a path", name.Quote(withoutUsers(path)))
	}
	return filepath.Abs(path)
}

// update does it, and has a running gateway look twice: when both versions are there,
// and when it is decided which of them stays.
func (a *app) update(ctx context.Context, s *install.Store, u install.Replacement) (install.Release, name.Version, error) {
	asked := false
	u.Switch = func(ctx context.Context, r install.Release) error {
		asked = true
		return a.publish(ctx, r)
	}
	now, from, err := s.Update(ctx, u, a.progress())
	switch again := context.WithoutCancel(ctx); {
	case !asked:
	case err != nil: // the candidate is gone again
		err = errors.Join(err, a.reconcileRunning(again))
	default:
		err = a.switched(again, now, from)
	}
	return now, from, err
}

// publish has a running gateway publish the routes of r, and says what keeps it from
// that. Without one there is nothing to do.
func (a *app) publish(ctx context.Context, r install.Release) error {
	key, version := r.Manifest.Key, r.Manifest.Version
	if err := a.stillRemoved(key, version); err != nil {
		return err
	}
	return a.takenUp(ctx, change{key: key, version: version, done: key.String() + " " + version.String() + " was verified"})
}

// switched has a running gateway take up that from has given way.
func (a *app) switched(ctx context.Context, now install.Release, from name.Version) error {
	key, version := now.Manifest.Key, now.Manifest.Version
	done := fmt.Sprintf("%s %s is installed, in the place of %s", key, version, from)
	if from.IsZero() {
		done = fmt.Sprintf("%s %s is installed", key, version)
	}
	o, err := a.reconciled(ctx, change{key: key, done: done})
	if err != nil {
		return err
	}
	for _, f := range o.Failed {
		if f.Version == "" || f.Version == version.String() {
			return hintf(a.failedHint(key), "%s, but the running gateway has no route of it: %s", done, routeProblem(f))
		}
	}
	for _, r := range o.Current {
		if !from.IsZero() && r.Version == from.String() {
			return hintf("lend status, then the same command again", "%s, but the running gateway still has a route of %s", done, from)
		}
	}
	a.noteOutcome(o)
	return nil
}

func (a *app) showUpdate(r shownRelease, from name.Version) error {
	shown := struct {
		SchemaVersion int `json:"schemaVersion"`
		shownRelease
		From string `json:"from,omitempty"`
	}{jsonSchema, r, from.String()}
	return a.show(shown, func() error {
		if from.IsZero() {
			return a.say("%s %s is the only version already", r.Key, r.Version)
		}
		if r.HasScripts {
			a.note("lend: a package of its lock has install scripts; they did not run")
		}
		a.noteVersions(r, from)
		return a.say("%s %s is in the place of %s, which goes when nothing runs of it", r.Key, r.Version, from)
	})
}

// noteVersions says what the policy has to say of the version that r is, where a rule
// names from and not that one. A policy that cannot be read is told of as well: nobody
// knows.
func (a *app) noteVersions(r shownRelease, from name.Version) {
	if p, err := a.paths(); err == nil {
		pol, err := loadPolicy(p.policy())
		if err == nil && !staleVersion(pol.Content().Rules, r, from) {
			return
		}
	}
	a.note("lend: the policy names versions: where it says %q for %s, let it say %q; then lend policy check", from, r.Key, r.Version)
}

func staleVersion(rules []*file.Rule, r shownRelease, from name.Version) bool {
	return slices.ContainsFunc(rules, func(rule *file.Rule) bool {
		now := func(v name.Version) bool { return v.String() == r.Version }
		return rule.Connector.String() == r.Key && slices.Contains(rule.Versions, from) && !slices.ContainsFunc(rule.Versions, now)
	})
}
