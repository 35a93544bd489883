//go:build !linux && !darwin

package main

import "fmt"

func takeDescriptors() *descriptors { return &descriptors{any: true} }

func promptPassphrase(_, variable string) ([]byte, error) {
	return nil, fmt.Errorf("cannot ask on this system: set %[1]s_FD or %[1]s", variable)
}
