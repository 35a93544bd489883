package connection

import "golang.org/x/sys/windows"

// systemRoot is where many programs find what they load; from the system, not
// from our own environment.
func systemRoot() string {
	dir, err := windows.GetSystemWindowsDirectory()
	if err != nil {
		return ""
	}
	return dir
}
