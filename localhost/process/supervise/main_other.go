//go:build !linux

package supervise

// Main returns: only Linux has supervisors.
func Main() {}

// Sources is empty: only Linux has supervisors.
func Sources() []string { return nil }
