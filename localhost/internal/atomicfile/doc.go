// Package atomicfile replaces small private files so that a crash leaves the old
// content or the new, never a part: write beside, sync, rename, sync the directory.
//
// Files are made with mode 0600. The functions may be called from any goroutine;
// of two writers of one file the later rename wins. The package imports nothing of
// ours.
package atomicfile
