//go:build !linux

package localhost

// hostProcess is of Linux.
func hostProcess(string) int { return 1 }
