// Package faults runs the real programs on a machine that fails them: a disk that is
// full, writes and syncs with errors, no descriptors, a reader that stops. Nothing
// may start without a record, and what can recover does so without a restart.
package faults
