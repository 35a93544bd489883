// Package presets tries the presets of policies with the real CLIs that they are for,
// lent to a caller, against services of its own: which requests a call makes, what of
// the owner's credentials is seen, and that each trick starts nothing.
package presets
