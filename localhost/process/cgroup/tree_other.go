//go:build !linux

package cgroup

import "github.com/rs/zerolog"

// Tree is a delegated cgroup; there is none on this system.
type Tree struct{}

// Group is the cgroup of one operation.
type Group struct{}

// Open returns ErrUnusable.
func Open(string, zerolog.Logger) (*Tree, error) { return nil, ErrUnusable }

// Detect finds nothing.
func Detect() (string, bool) { return "", false }

// Close does nothing.
func (t *Tree) Close() error { return nil }

// Controllers is empty.
func (t *Tree) Controllers() []string { return nil }

// Dir is empty.
func (t *Tree) Dir() string { return "" }
