// Package home copies the private directories of a connection for one operation,
// so that what one writes there does not reach the next: a CLI reads its aliases,
// hooks and plugins from its home, and what a caller can make it write there would
// steer whoever comes after.
//
// The baseline is what the CLI's own login left on the owner's terminal. Copying
// follows no link, takes directories, regular files and links that stay inside,
// leaves sockets, pipes and devices out, and ends at bounds.
//
// Making and removing directories can take longer than starting a process. Rooms makes
// them ahead and removes them behind, and hands out once more, under another path, what
// an operation has left exactly as it got it.
package home
