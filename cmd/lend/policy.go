package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/gateway/policyfile"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/protocol/name"
)

const maxPolicyFile = 1 << 20

func (a *app) policyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "check, compare, explain and change the file that says what is lent",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(a.policyCheckCommand(), a.policyTestCommand(), a.policyExplainCommand(), a.policySchemaCommand(), a.policyPresetCommand(),
		a.policyDiffCommand(), a.policyWhoCommand(), a.policyFmtCommand(), a.policyAllowCommand(), a.policyDenyCommand())
	return c
}

// readPolicy reads a policy file that only the owner can have written, behind links
// that only the owner can have made.
func readPolicy(path string) ([]byte, error) {
	target, err := ownerfile.Follow(path)
	if err != nil {
		return nil, err
	}
	return ownerfile.Read(target, ownerfile.Trusted, maxPolicyFile)
}

// loadPolicy reads a policy file and parses it.
func loadPolicy(path string) (*policy.Policy, error) {
	if path == "-" { // a policy in force is a file that only its owner can have written
		return nil, usagef("give a file, or ./- for one of that name", "a policy is not read from standard input here")
	}
	data, err := readPolicy(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, usagef("lend init", "%s: there is no policy file, so nothing is lent", path)
	}
	if err != nil {
		return nil, &usageError{err: err, hint: unsafeHint(err)}
	}
	p, err := policy.Parse(path, data)
	if err != nil {
		return nil, &usageError{err: err}
	}
	return p, nil
}

func unsafeHint(err error) string {
	var unsafe *ownerfile.UnsafeError
	if errors.As(err, &unsafe) {
		return unsafe.Hint
	}
	return ""
}

// policyFile is the one that the command names, or the machine's.
func (a *app) policyFile(args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	p, err := a.paths()
	return p.policy(), err
}

type policyReport struct {
	SchemaVersion int                 `json:"schemaVersion"`
	File          string              `json:"file"`
	Digest        string              `json:"digest"`
	Findings      []policy.Finding    `json:"findings"`
	Tests         []policy.TestResult `json:"tests"`
	Access        []review.Prose      `json:"access,omitempty"`
	OK            bool                `json:"ok"`
	long          bool
}

func (a *app) policyReport(file string) (policyReport, error) {
	p, err := loadPolicy(file)
	if err != nil {
		return policyReport{}, err
	}
	return a.reportOn(file, p)
}

// reportOn is about a policy that was read from the file.
func (a *app) reportOn(file string, p *policy.Policy) (policyReport, error) {
	contracts, err := a.installedContracts()
	if err != nil {
		return policyReport{}, err
	}
	r := policyReport{
		SchemaVersion: jsonSchema, File: file, Digest: p.Digest(), OK: true,
		Findings: p.Lint(contracts), Tests: p.RunTests(contracts), Access: p.Sentences(contracts),
	}
	for _, f := range r.Findings {
		r.OK = r.OK && f.Level != policy.LevelError
	}
	for _, t := range r.Tests {
		r.OK = r.OK && t.Passed
	}
	return r, nil
}

func (a *app) policyCheckCommand() *cobra.Command {
	var long bool
	c := &cobra.Command{
		Use:   "check [FILE]",
		Short: "say what is wrong or risky in a policy, and what it lets whom do",
		Long: `Read a policy file strictly, hold it against the installed Connectors, run its
tests, warn of risky grants, and print in plain sentences who may do what: that
is what to review. A list of more than six items is cut to three, and a pattern
of more than 40 characters is "a pattern": --long and --json leave nothing out.
Exit status 2: the file cannot be used; 1: it has errors or a test fails; 0: it
can be served. A running gateway takes up a file that can be served within about
a second, and keeps its last good policy otherwise.`,
		Example: "  lend policy check\n  lend policy check ./policy.yaml --long",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := a.policyFile(args)
			if err != nil {
				return err
			}
			r, err := a.policyReport(file)
			if err != nil {
				return err
			}
			r.long = long
			if err := a.show(r, func() error { return a.printReport(r) }); err != nil {
				return err
			}
			a.noteServedPolicy(cmd.Context(), file, r.Digest, r.OK)
			if !r.OK {
				return &statusError{1}
			}
			return nil
		},
	}
	bindLong(c, &long)
	return c
}

// bindLong adds the flag that has sentences say everything.
func bindLong(c *cobra.Command, long *bool) {
	c.Flags().BoolVar(long, "long", false, "print long lists and patterns in full, as --json does")
}

// saidOf is one of the forms of a sentence.
func saidOf(p review.Prose, long bool) string {
	if long {
		return p.Long()
	}
	return p.Brief()
}

// servedPolicy asks a running gateway what it makes of the file; false: it has
// another one, or there is none.
func (a *app) servedPolicy(ctx context.Context, file string) (admin.Policy, bool) {
	p, err := a.paths()
	if err != nil {
		return admin.Policy{}, false
	}
	s, err := admin.NewClient(p.socket).Status(ctx)
	return s.Policy, err == nil && s.Policy.File == absolute(file)
}

// noteServedPolicy says what a running gateway makes of the file.
func (a *app) noteServedPolicy(ctx context.Context, file, digest string, ok bool) {
	served, here := a.servedPolicy(ctx, file)
	switch {
	case !here:
	case served.Digest == digest && served.State == policyfile.InForce.String():
		a.note("lend: the running gateway has it in force")
	case ok:
		a.note("lend: the running gateway is about to take it up; next: lend status")
	default:
		a.note("lend: the running gateway keeps its last good policy, %.12s", served.Digest)
	}
}

// noteOldPolicy says so if the running gateway has another policy than the file's.
func (a *app) noteOldPolicy(ctx context.Context, file, digest string) {
	if served, here := a.servedPolicy(ctx, file); here && served.Digest != digest {
		a.note("lend: the running gateway has another policy in force; next: lend status")
	}
}

// absolute is a path as the running gateway has it.
func absolute(file string) string {
	if abs, err := filepath.Abs(file); err == nil {
		return abs
	}
	return file
}

func (a *app) printReport(r policyReport) error {
	for _, f := range r.Findings {
		a.note("%s: %s: %s", f.Position, f.Level, f.Message)
		if f.Hint != "" {
			a.note("  %s", f.Hint)
		}
	}
	failed := a.noteFailedTests(r.Tests)
	for _, s := range r.Access {
		if err := a.say("%s", saidOf(s, r.long)); err != nil {
			return err
		}
	}
	a.note("lend: %s: findings: %d; tests: %d of %d pass", r.File, len(r.Findings), len(r.Tests)-failed, len(r.Tests))
	return nil
}

func (a *app) noteFailedTests(tests []policy.TestResult) (failed int) {
	for _, t := range tests {
		if !t.Passed {
			failed++
			a.note("%s: test %s fails: %s", t.Position, name.Quote(t.Name), t.Message)
		}
	}
	return failed
}

func (a *app) policyTestCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "test [FILE]",
		Short:   "run the tests that stand in the policy file",
		Example: "  lend policy test",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := a.policyFile(args)
			if err != nil {
				return err
			}
			p, err := loadPolicy(file)
			if err != nil {
				return err
			}
			contracts, err := a.installedContracts()
			if err != nil {
				return err
			}
			r := struct {
				SchemaVersion int                 `json:"schemaVersion"`
				Tests         []policy.TestResult `json:"tests"`
			}{jsonSchema, p.RunTests(contracts)}
			failed := 0
			err = a.show(r, func() error {
				failed = a.noteFailedTests(r.Tests)
				return a.say("%d of %d tests pass", len(r.Tests)-failed, len(r.Tests))
			})
			for _, t := range r.Tests {
				if !t.Passed {
					return errors.Join(err, &statusError{1})
				}
			}
			return err
		},
	}
}

func (a *app) policySchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "print the JSON Schema of policy files, for editors",
		Example: "  lend policy schema > policy.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(policy.Schema())
			return err
		},
	}
}

func (a *app) policyExplainCommand() *cobra.Command {
	var peer, issuer, file, leaseFile, version, at string
	var stdin bool
	c := &cobra.Command{
		Use:   "explain --peer PEER [--lease FILE] -- KEY COMMAND [ARGUMENTS…]",
		Short: "say why a command would or would not run",
		Long: `Go through the decision for one request and print each stage, the rule that
decides with its place in the file, and the arguments as the command would get
them. PEER is a name of the policy or a peer ID. Without --lease, a lease of the
owner's that grants everything is assumed. All flags come before the --.`,
		Example: `  lend policy explain --peer laptop -- github issue.list --repo acme/site
  lend policy explain --peer laptop --lease laptop.lease -- github issue.view 7`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if peer == "" {
				return usagef("lend policy explain --peer PEER -- KEY COMMAND", "--peer is missing")
			}
			path, err := a.policyFile(nonEmpty(file))
			if err != nil {
				return err
			}
			p, err := loadPolicy(path)
			if err != nil {
				return err
			}
			r, err := a.explainRequest(p, args, explainFlags{peer, issuer, version, at, leaseFile, stdin})
			if err != nil {
				return err
			}
			contracts, err := a.installedContracts()
			if err != nil {
				return err
			}
			e := p.Explain(nil, r, contracts)
			if err := a.show(struct {
				SchemaVersion int `json:"schemaVersion"`
				policy.Explanation
			}{jsonSchema, e}, func() error { return a.say("%s", strings.TrimRight(e.String(), "\n")) }); err != nil {
				return err
			}
			if !e.Allowed {
				return &statusError{1}
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&peer, "peer", "", "the peer that asks: a name of the policy or a peer ID")
	f.StringVar(&issuer, "issuer", "", "the issuer of the lease: a name or an ID (default: this machine's owner key)")
	f.StringVar(&leaseFile, "lease", "", "check this lease file as well; - reads standard input")
	f.StringVar(&version, "version", "", "the Connector's version (default: the only installed one)")
	f.StringVar(&file, "policy", "", "another policy file than this machine's")
	f.BoolVar(&stdin, "stdin", false, "the caller sends input")
	f.StringVar(&at, "at", "", "decide as of this time (RFC 3339)")
	return c
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

type explainFlags struct {
	peer, issuer, version, at, lease string
	stdin                            bool
}

func (a *app) explainRequest(p *policy.Policy, args []string, f explainFlags) (policy.Request, error) {
	r := policy.Request{Arguments: args[2:], Stdin: f.stdin, Now: time.Now()}
	var err error
	if f.at != "" {
		if r.Now, err = time.Parse(time.RFC3339, f.at); err != nil {
			return r, usagef("--at 2027-06-30T12:00:00Z", "--at %s: not a time of RFC 3339", name.Quote(f.at))
		}
	}
	if r.Connector, err = name.ParseConnectorKey(args[0]); err != nil {
		return r, &usageError{err: err}
	}
	if r.Command, err = name.ParseCommand(args[1]); err != nil {
		return r, &usageError{err: err}
	}
	if r.Peer, err = resolvePeer(p, f.peer); err != nil {
		return r, err
	}
	if r.Version, err = a.chooseVersion(r.Connector, f.version); err != nil {
		return r, err
	}
	if f.lease != "" {
		return a.applyLease(p, r, f.lease)
	}
	r.Issuer, err = a.resolveIssuer(p, f.issuer)
	return r, err
}

// resolvePeer takes a name of the policy or a peer ID.
func resolvePeer(p *policy.Policy, s string) (name.PeerID, error) {
	if id, err := name.ParsePeerID(s); err == nil {
		return id, nil
	}
	if label, err := name.ParseLabel(s); err == nil {
		if id, ok := p.Peers()[label]; ok {
			return id, nil
		}
	}
	return name.PeerID{}, usagef("lend id, on the peer's machine, prints its ID",
		"%s is neither a peer of the policy nor a peer ID", name.Quote(s))
}

// resolveIssuer takes a name of the policy or an ID; the default is this machine's
// owner key.
func (a *app) resolveIssuer(pol *policy.Policy, s string) (name.PeerID, error) {
	for _, i := range pol.Issuers() {
		if i.Name.String() == s {
			return i.ID, nil
		}
	}
	if s != "" {
		id, err := name.ParsePeerID(s)
		if err != nil {
			return id, usagef("lend id --owner, on the issuer's machine, prints its ID",
				"%s is neither an issuer of the policy nor an ID", name.Quote(s))
		}
		return id, nil
	}
	p, err := a.paths()
	if err != nil {
		return name.PeerID{}, err
	}
	key, err := loadKey(p.ownerKey())
	if err != nil {
		return name.PeerID{}, err
	}
	return peerID(key)
}

// applyLease checks a lease file as the gateway would, and takes issuer and pins
// from it.
func (a *app) applyLease(p *policy.Policy, r policy.Request, file string) (policy.Request, error) {
	f, err := a.readLease(file)
	if err != nil {
		return r, err
	}
	paths, err := a.paths()
	if err != nil {
		return r, err
	}
	key, err := loadIdentity(paths)
	if err != nil {
		return r, err
	}
	self, err := peerID(key)
	if err != nil {
		return r, err
	}
	verifier := lease.Verifier{
		Gateway: self, Revoked: openRevocations(paths), Skew: lease.DefaultSkew, Now: func() time.Time { return r.Now },
		Issuers: func(id name.PeerID) (lease.IssuerRule, bool) {
			i, ok := p.Issuer(id)
			return lease.IssuerRule{
				MaxLife: i.MaxLife, AnyConnector: i.AnyConnector, Connectors: i.Connectors, Until: i.Until,
				MaxDepth: i.MaxDepth, MayName: i.MayName,
			}, ok
		},
	}
	v, err := verifier.Verify(f.Chain, r.Peer)
	if err != nil {
		return r, fmt.Errorf("the gateway would refuse the lease: %w", err)
	}
	g, err := v.Grant(r.Connector, r.Version, r.Command)
	if err != nil {
		return r, fmt.Errorf("the gateway would refuse the request: %w", err)
	}
	r.Issuer, r.Pins = v.Root, g.Pins
	return r, nil
}
