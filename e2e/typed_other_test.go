//go:build !linux

package e2e

import "github.com/rogpeppe/go-internal/testscript"

// cmdTyped is of scripts, which run on Linux alone.
func cmdTyped(ts *testscript.TestScript, _ bool, _ []string) { ts.Fatalf("no terminal") }
