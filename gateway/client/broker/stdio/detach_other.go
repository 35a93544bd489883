//go:build !linux && !darwin

package stdio

// Detach does nothing where no streams of others are read.
func Detach() {}
