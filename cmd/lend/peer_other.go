//go:build !linux && !darwin

package main

// terminalWidth is not known here.
func terminalWidth(any) int { return 0 }

// forgetTyped does nothing: what is typed before a question answers it here.
func forgetTyped(any) error { return nil }
