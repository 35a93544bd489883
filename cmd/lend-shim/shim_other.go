//go:build !linux && !darwin

package main

// shim does nothing: there is no socket that the broker could use.
func shim(string, []string) int {
	say("this system has no sockets that the broker could use", "")
	return exitUsage
}
