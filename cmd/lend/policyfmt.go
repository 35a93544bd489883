package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/layout"
)

func (a *app) policyFmtCommand() *cobra.Command {
	var showDiff, check, write bool
	c := &cobra.Command{
		Use:   "fmt [FILE]",
		Short: "lay a policy file out anew, with its comments",
		Long: `Print a policy file in canonical layout: two spaces of indentation, one after a
colon, a comma and a dash, at most one blank line in a row. Order, quotes,
brackets and comments stay. What comes out was read again and says the same;
otherwise it is refused. FILE - is standard input. With --check, exit status 1
if the file is not in that layout. With --write the file is replaced at once,
its mode kept.`,
		Example: "  lend policy fmt -d\n  lend policy fmt --write\n  lend policy fmt --check ./policy.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := a.policyFile(args)
			if err != nil {
				return err
			}
			if write && file == "-" {
				return usagef("lend policy fmt - < FILE", "standard input cannot be written")
			}
			f, err := a.openPolicy(file)
			if err != nil {
				return err
			}
			out, err := layout.Format(file, f.data)
			if errors.Is(err, layout.ErrLayout) {
				return hintf("write that place in a plainer way", "%w", err)
			}
			if err != nil {
				return &usageError{err: err}
			}
			return a.formatted(cmd, f, out, showDiff, check, write)
		},
	}
	c.Flags().BoolVarP(&showDiff, "diff", "d", false, "print what would change, as a diff")
	c.Flags().BoolVar(&check, "check", false, "print nothing; exit with 1 if anything would change")
	c.Flags().BoolVar(&write, "write", false, "replace the file")
	return c
}

func (a *app) formatted(cmd *cobra.Command, f policyText, out []byte, showDiff, check, write bool) error {
	same := bytes.Equal(f.data, out)
	r := struct {
		SchemaVersion int    `json:"schemaVersion"`
		File          string `json:"file"`
		Formatted     bool   `json:"formatted"` // it was already
		Written       bool   `json:"written"`
		Text          string `json:"text,omitempty"`
	}{jsonSchema, f.file, same, write && !same, ""}
	if write && !same {
		if err := a.replace(f, out); err != nil {
			return err
		}
	}
	if !write && !check {
		r.Text = string(out)
	}
	err := a.show(r, func() error {
		switch {
		case showDiff && !same:
			return a.say("%s", bytes.TrimRight(diff.Diff(f.file, f.data, f.file+" (formatted)", out), "\n"))
		case showDiff, check:
		case write && !same:
			a.note("lend: %s is laid out anew", f.file)
		case !write:
			_, err := a.out.Write(out)
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	if write && !same {
		if p, err := policy.Parse(f.file, out); err == nil {
			a.noteTaken(cmd.Context(), f.file, p.Digest())
		}
	}
	if check && !same {
		a.note("lend: %s is not in canonical layout; next: lend policy fmt --write", f.file)
		return &statusError{1}
	}
	return nil
}

// policyText is a policy file as it was read. Target is where it is, behind links.
type policyText struct {
	file, target string
	data         []byte
}

// openPolicy reads a policy file that may be written; - is standard input.
func (a *app) openPolicy(file string) (policyText, error) {
	f := policyText{file: file}
	var err error
	if file == "-" {
		f.data, err = io.ReadAll(io.LimitReader(a.in, policy.MaxFile+1))
		return f, err
	}
	if f.target, err = ownerfile.Follow(file); err == nil {
		f.data, err = ownerfile.Read(f.target, ownerfile.Trusted, maxPolicyFile)
	}
	if errors.Is(err, os.ErrNotExist) {
		return f, usagef("lend init", "%s: there is no policy file, so nothing is lent", file)
	}
	if err != nil {
		return f, &usageError{err: err, hint: unsafeHint(err)}
	}
	return f, nil
}

// replace writes the file if it is still what was read.
func (a *app) replace(f policyText, data []byte) error {
	return a.replaced(f.file, ownerfile.Rewrite(f.target, ownerfile.Trusted, f.data, data))
}

// replaced is an error only if the file is as it was.
func (a *app) replaced(file string, err error) error {
	if errors.Is(err, ownerfile.ErrUnsynced) {
		a.note("lend: the policy is written, but a power cut may yet bring the old one back: %v", err)
		return nil
	}
	if errors.Is(err, ownerfile.ErrChanged) {
		return hintf("try again", "%s was changed by someone else meanwhile, and stays as it is", file)
	}
	if err != nil {
		return fmt.Errorf("the policy stays as it is: %w", err)
	}
	return nil
}
