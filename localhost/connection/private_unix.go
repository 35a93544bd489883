//go:build unix

package connection

// systemRoot is of Windows.
func systemRoot() string { return "" }
