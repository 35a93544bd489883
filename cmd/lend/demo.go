package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) demoCommand() *cobra.Command {
	var keep bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "show all of it on loopback, in about ten seconds",
		Long: `Make an owner and two peers in a temporary directory, serve a small Connector
on loopback, and run: a lent command with streaming input, a command and an
argument that are not lent, a stolen lease, and a run that is cancelled. Each
goes through the same code as lend serve and lend run.`,
		Example: "  lend demo\n  lend demo --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), keep) },
	}
	c.Flags().BoolVar(&keep, "keep", false, "keep the directory and say where it is")
	c.AddCommand(a.demoConnectorCommand())
	return c
}

// demoStep is what one step of the demonstration showed.
type demoStep struct {
	Step   string `json:"step"`
	Expect string `json:"expect"`
	Got    string `json:"got"`
	OK     bool   `json:"ok"`
}

type demoReport struct {
	SchemaVersion int        `json:"schemaVersion"`
	Steps         []demoStep `json:"steps"`
	Started       int        `json:"processesStarted"`
	DurationMS    int64      `json:"durationMs"`
	OK            bool       `json:"ok"`
}

// demoNode is one machine of the demonstration: an app with a directory of its own.
type demoNode struct {
	*app
	paths paths
	id    name.PeerID
}

func (a *app) demo(ctx context.Context, keep bool) (err error) {
	begun := time.Now()
	dir, err := os.MkdirTemp("", "lend-demo-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	if keep {
		a.note("lend: everything is in %s", dir)
	} else {
		defer func() { err = errors.Join(err, removeReadOnly(dir)) }()
	}
	d := &demonstration{app: a, dir: dir, ctx: ctx}
	if err := d.prepare(); err != nil {
		return joinClose(err, d.close)
	}
	err = joinClose(d.run(), d.close)
	if err != nil {
		return err
	}
	d.report.SchemaVersion, d.report.DurationMS = jsonSchema, time.Since(begun).Milliseconds()
	d.report.Started, d.report.OK = d.starts(), true
	for _, s := range d.report.Steps {
		d.report.OK = d.report.OK && s.OK
	}
	if err := d.show(); err != nil {
		return err
	}
	if !d.report.OK {
		return errors.New("the demonstration did not go as expected")
	}
	return nil
}

type demonstration struct {
	*app
	dir                  string
	ctx                  context.Context //nolint:containedctx // one run of the demonstration
	owner, caller, thief demoNode
	serving              *serving
	lease                lease.File
	report               demoReport
}

const demoVersion = "1.0.0"

// node makes a machine, as lend init does.
func (d *demonstration) node(label string) (demoNode, error) {
	n := demoNode{app: newApp(nil, strings.NewReader(""), io.Discard, io.Discard)}
	n.dir = filepath.Join(d.dir, label)
	if err := n.initialise(""); err != nil {
		return n, err
	}
	var err error
	if n.paths, err = n.app.paths(); err != nil {
		return n, err
	}
	key, err := loadIdentity(n.paths)
	if err != nil {
		return n, err
	}
	n.id, err = peerID(key)
	return n, err
}

func (d *demonstration) prepare() error {
	for label, n := range map[string]*demoNode{"owner": &d.owner, "caller": &d.caller, "thief": &d.thief} {
		var err error
		if *n, err = d.node(label); err != nil {
			return err
		}
	}
	if err := d.connector(); err != nil {
		return err
	}
	if err := d.policy(); err != nil {
		return err
	}
	var err error
	d.serving, err = d.owner.startServing(d.ctx, serveFlags{
		listen: []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"},
	}, zerolog.Nop())
	if err != nil {
		return err
	}
	d.lease, err = d.issue()
	return err
}

// command runs one of our own commands as the owner would type it.
func (d *demonstration) command(args ...string) error {
	var said bytes.Buffer
	a := newApp(append(args, "--dir", d.owner.dir), strings.NewReader(""), io.Discard, &said)
	if code := run(d.ctx, a); code != 0 {
		return fmt.Errorf("lend %s: exit status %d: %s", strings.Join(args, " "), code, strings.TrimSpace(said.String()))
	}
	return nil
}

// connector installs a Connector whose executable is a copy of this program.
func (d *demonstration) connector() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	dir := filepath.Join(d.dir, "connector")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	const entrypoint = "demo-program"
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, entrypoint), program, 0o700), //nolint:gosec // an executable
		os.WriteFile(filepath.Join(dir, manifest.FileName), fmt.Appendf(nil, demoManifest, demoVersion, entrypoint), 0o600),
	); err != nil {
		return err
	}
	if err := d.command("connector", "add", dir); err != nil {
		return err
	}
	return d.command("connector", "setting", "set", "demo", "DEMO_STARTS", filepath.Join(d.dir, "starts"))
}

const demoManifest = `{
  "schemaVersion": "1", "key": "demo", "version": %q, "displayName": "Demonstration",
  "cli": {
    "command": "demo", "kind": "native", "entrypoint": %q, "arguments": ["demo", "connector"],
    "commands": {
      "upper": {"summary": "upper-case each line of input", "effect": "read", "arguments": ["upper"],
        "parameters": {"text": {"stdin": {"max_bytes": 1048576, "text": true}, "free_text": true}}},
      "greet": {"summary": "greet somebody", "effect": "read", "arguments": ["greet"],
        "parameters": {"name": {"flag": "--name", "required": true, "pattern": "[A-Z][a-z]{1,20}"}}},
      "wait": {"summary": "wait for a minute", "effect": "read", "arguments": ["wait"]},
      "erase": {"summary": "erase everything", "effect": "write", "arguments": ["erase"]}
    }
  }
}
`

func (d *demonstration) policy() error {
	key, err := loadKey(d.owner.paths.ownerKey())
	if err != nil {
		return err
	}
	owner, err := peerID(key)
	if err != nil {
		return err
	}
	return ownerfile.Replace(d.owner.paths.policy(), fmt.Appendf(nil, `policy: 1
issuers:
  owner: {id: %s, connectors: [demo], holders: [caller]}
peers:
  caller: %s
  thief: %s
allow:
  - name: the caller may upper-case, greet and wait
    to: [caller]
    connector: demo
    version: %q
    commands: {upper: {}, greet: {name: {enum: [Ada, Grace]}}, wait: {}}
tests:
  - {name: greeting Ada, peer: caller, issuer: owner, run: [demo, greet, --name, Ada], want: allow}
  - {name: greeting others, peer: caller, issuer: owner, run: [demo, greet, --name, Eve], want: deny, code: ARGUMENT_REJECTED}
  - {name: erasing, peer: caller, issuer: owner, run: [demo, erase], want: deny, code: COMMAND_UNKNOWN}
`, owner, d.caller.id, d.thief.id, demoVersion))
}

func (d *demonstration) issue() (lease.File, error) {
	out := filepath.Join(d.dir, "caller.lease")
	if err := d.command("lease", "issue", "--to", "caller", "--local-addresses", "--purpose", "the demonstration", "--out", out,
		"demo", "upper", "greet", "wait"); err != nil {
		return lease.File{}, err
	}
	return d.owner.readLease(out)
}

func (d *demonstration) close() error {
	if d.serving == nil {
		return nil
	}
	return d.serving.close()
}

// client is what a peer dials with.
func (d *demonstration) client(n demoNode, skip bool) (*client.Client, error) {
	key, err := loadIdentity(n.paths)
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{Key: key, Leases: client.Static(d.lease), SkipLeaseCheck: skip})
}

func (d *demonstration) step(step, expect, got string) {
	ok := strings.HasPrefix(got, expect)
	d.report.Steps = append(d.report.Steps, demoStep{step, expect, got, ok})
	if !d.json {
		mark := "ok "
		if !ok {
			mark = "BAD"
		}
		_ = d.say("%s  %-46s %s", mark, step, got)
	}
}

func (d *demonstration) run() error {
	caller, err := d.client(d.caller, false)
	if err != nil {
		return err
	}
	defer func() { _ = caller.Close() }() // the end of each run was looked at
	bold, err := d.client(d.caller, true) // asks for what its lease does not have
	if err != nil {
		return err
	}
	defer func() { _ = bold.Close() }()
	thief, err := d.client(d.thief, true)
	if err != nil {
		return err
	}
	defer func() { _ = thief.Close() }()

	if err := d.stream(caller); err != nil {
		return err
	}
	out, err := caller.Command(d.ctx, "demo", "greet", "--name", "Ada").Output()
	d.step("lent: greet --name Ada", `"Hello, Ada!\n"`, outcome(out, err))
	out, err = bold.Command(d.ctx, "demo", "erase").Output()
	d.step("not lent: erase", "refused: COMMAND_UNKNOWN", outcome(out, err))
	out, err = caller.Command(d.ctx, "demo", "greet", "--name", "Eve").Output()
	d.step("argument not lent: greet --name Eve", "refused: ARGUMENT_REJECTED", outcome(out, err))
	out, err = caller.Command(d.ctx, "demo", "greet", "--name=@/etc/passwd").Output()
	d.step("a file for a name: greet --name=@/etc/passwd", "refused: ARGUMENT_REJECTED", outcome(out, err))
	out, err = thief.Command(d.ctx, "demo", "greet", "--name", "Ada").Output()
	d.step("the lease, stolen by another peer", "refused: DENIED", outcome(out, err))
	return d.cancelled(caller)
}

// stream sends one line, waits for its answer, and only then sends the next.
func (d *demonstration) stream(c *client.Client) error {
	cmd := c.Command(d.ctx, "demo", "upper")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	answers := bufio.NewReader(out)
	var got []string
	for _, line := range []string{"lend a command,", "never a shell"} {
		if _, err := fmt.Fprintln(in, line); err != nil {
			return err
		}
		answer, err := answers.ReadString('\n')
		if err != nil {
			return err
		}
		got = append(got, strings.TrimSpace(answer))
	}
	err = errors.Join(in.Close(), cmd.Wait())
	d.step("lent: upper, line by line", `"LEND A COMMAND, NEVER A SHELL"`, outcome([]byte(strings.Join(got, " ")), err))
	return nil
}

// cancelled stops a run half-way.
func (d *demonstration) cancelled(c *client.Client) error {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	cmd := c.Command(ctx, "demo", "wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return err
	}
	begun := time.Now()
	cancel()
	err = cmd.Wait()
	d.step("lent: wait, cancelled half-way", "CANCELLED", fmt.Sprintf("%s, ended after %d ms", outcome(nil, err), time.Since(begun).Milliseconds()))
	return nil
}

// outcome is a run in a few words.
func outcome(out []byte, err error) string {
	var refused *client.RefusedError
	var ended *client.EndedError
	switch {
	case err == nil:
		return name.Quote(string(out))
	case errors.As(err, &ended):
		return ended.Code.String()
	case errors.As(err, &refused):
		return "refused: " + refused.Code.String()
	default:
		return err.Error()
	}
}

// starts counts the processes that the Connector's program was started in.
func (d *demonstration) starts() int {
	b, err := os.ReadFile(filepath.Join(d.dir, "starts"))
	if err != nil {
		return 0
	}
	return bytes.Count(b, []byte("\n"))
}

func (d *demonstration) show() error {
	if d.json {
		return d.printJSON(d.report)
	}
	return d.say("    processes started for the peers: %d, in %.1f s", d.report.Started, float64(d.report.DurationMS)/1000)
}

// removeReadOnly removes a tree in which directories are read-only.
func removeReadOnly(dir string) error {
	err := filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = os.Chmod(p, 0o700) //nolint:gosec // a directory
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(dir))
}

// demoConnectorCommand is the Connector's program of the demonstration.
func (a *app) demoConnectorCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "connector",
		Hidden:             true,
		Args:               cobra.MinimumNArgs(1),
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := countStart(os.Getenv("DEMO_STARTS")); err != nil {
				return err
			}
			switch args[0] {
			case "upper":
				lines := bufio.NewScanner(a.in)
				for lines.Scan() {
					if err := a.say("%s", strings.ToUpper(lines.Text())); err != nil {
						return err
					}
				}
				return lines.Err()
			case "greet":
				return a.say("Hello, %s!", strings.TrimPrefix(args[len(args)-1], "--name="))
			case "wait":
				if err := a.say("waiting"); err != nil {
					return err
				}
				select {
				case <-cmd.Context().Done():
				case <-time.After(time.Minute):
				}
				return nil
			default:
				return usagef("", "unknown command")
			}
		},
	}
}

// countStart proves what ran and what did not.
func countStart(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, os.Getpid())
	return errors.Join(err, f.Close())
}
