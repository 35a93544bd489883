// Package rig sets up machines for the test packages that need the real programs,
// root and tools of the system: an owner with the Connector fx and a caller with a
// lease, each in a LEND_DIR of its own. It ships with nothing.
package rig
