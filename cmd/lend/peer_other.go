//go:build !linux && !darwin

package main

// terminalWidth is not known here.
func terminalWidth(any) int { return 0 }
