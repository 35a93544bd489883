package cgroup

import "errors"

var (
	// ErrUnusable: the directory is not a cgroup that was delegated to this process.
	ErrUnusable = errors.New("not a delegated cgroup (version 2)")
	// ErrInUse: another gateway has the directory.
	ErrInUse = errors.New("another gateway uses the cgroup")
)

// Limits bound one Group; 0 means no bound. What the delegated cgroup has no
// controller for is not bound.
type Limits struct {
	Processes int   // and threads
	Memory    int64 // bytes of all together; there is no swap beyond it
}
