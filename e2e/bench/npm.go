//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lendcli/lend/gateway/client"
)

const (
	groupNpm = "npm" // a script on Node.js

	byNode = "local node, the same script"
)

// The package, which depends on no other: it shows its help.
const (
	npmKey     = "semver"
	npmVersion = "7.8.6"
	npmScript  = "semver/bin/semver.js"
)

// npm is an owner who lends an unchanged npm package. It is made for the first case
// that needs it, from the registry that npm is set to.
type npm struct {
	dir, bin string

	node, script string // as installed
	lent         *client.Client
	closer       []func()
	made         error
	tried        bool
}

func (n *npm) close() {
	for i := len(n.closer) - 1; i >= 0; i-- {
		n.closer[i]()
	}
}

func (n *npm) make(ctx context.Context) error {
	if !n.tried {
		n.tried = true
		n.made = n.build(context.WithoutCancel(ctx)) // it outlives the case
	}
	return n.made
}

func (n *npm) build(ctx context.Context) error {
	registry := os.Getenv("NPM_CONFIG_REGISTRY")
	if registry == "" {
		out, err := exec.CommandContext(ctx, "npm", "config", "get", "registry").Output()
		if err != nil {
			return fmt.Errorf("find the registry: %w", err)
		}
		registry = strings.TrimSpace(string(out))
	}
	w := &world{dir: n.dir, bin: n.bin}
	w.more = func(ctx context.Context, w *world) error {
		within, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		for _, step := range [][]string{
			{"runtime", "add", "node", "--registry", registry},
			{"connector", "new", "npm:" + npmKey + "@" + npmVersion, "--registry", registry, "--out", filepath.Join(n.dir, "package")},
			{"connector", "add", filepath.Join(n.dir, "package"), "--registry", registry},
		} {
			if _, err := w.run(within, w.owner, step...); err != nil {
				return err
			}
		}
		return nil
	}
	w.commands = "  " + npmKey + ":\n    help: {effect: read, arguments: [--help]}\n"
	w.rules = "  - {name: npm, to: [bench], connector: " + npmKey + `, version: "` + npmVersion + "\", commands: {help: {}}}\n"
	if err := w.start(ctx, nil); err != nil {
		return err
	}
	n.closer = append(n.closer, w.stop)
	var err error
	if n.node, err = locate(filepath.Join(w.owner, "connectors", "runtimes"), "node"); err != nil {
		return err
	}
	if n.script, err = locate(filepath.Join(w.owner, "connectors", "connectors"), npmScript); err != nil {
		return err
	}
	f, _, err := w.issueFor(ctx, "bench", "TCP", npmKey, "help")
	if err != nil {
		return err
	}
	h, err := newHost("TCP+Noise", w.key)
	if err != nil {
		return err
	}
	n.closer = append(n.closer, func() { _ = h.Close() })
	n.lent, err = client.New(client.Config{Host: h, Leases: client.Static(f), Wait: time.Minute})
	if err == nil {
		n.closer = append(n.closer, func() { _ = n.lent.Close() })
	}
	return err
}

// locate finds the file whose path ends like that.
func locate(root, end string) (found string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, "/"+end) {
			found = path
			return fs.SkipAll
		}
		return err
	})
	if err == nil && found == "" {
		err = fmt.Errorf("no %s below %s", end, root)
	}
	return found, err
}

func (n *npm) local(ctx context.Context) error {
	home := n.dir
	env := []string{"HOME=" + home, "TMPDIR=" + home, "XDG_STATE_HOME=" + home, "PATH=/dev/null", "LC_CTYPE=C.UTF-8"}
	return spawn(ctx, env, []string{n.node, n.script, "--help"}, nil, io.Discard)
}

func (n *npm) remote(ctx context.Context) error {
	cmd := n.lent.Command(ctx, npmKey, "help")
	cmd.Stdout = io.Discard
	return cmd.Run()
}

func (f *field) addNpm(s *Suite) {
	n := &npm{dir: filepath.Join(f.dir, "npm"), bin: f.bin}
	f.closer = append(f.closer, n.close)
	add := func(name string, run func(context.Context) error) {
		s.AddSome(fewReps, groupNpm, name, func(ctx context.Context) (Sample, error) {
			if err := n.make(ctx); err != nil {
				return nil, err
			}
			return latency(ctx, s.N(40), run)
		})
	}
	add(byNode, n.local)
	add(bySDK("TCP+Noise"), n.remote)
}
