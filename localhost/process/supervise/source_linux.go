package supervise

import _ "embed"

//go:embed wire.go
var wireSource string

//go:embed main_linux.go
var mainSource string

//go:embed tree_linux.go
var treeSource string

//go:embed limits_linux.go
var limitsSource string

//go:embed pin_linux.go
var pinSource string

//go:embed wait_linux.go
var waitSource string

// Sources returns the text of this package's code, which the compiler puts into
// every binary that links it. A file that holds all of it, byte for byte, was built
// from the same supervisor: a build ID that needs no flag, no repository and no
// discipline, and that can be read without running the file.
func Sources() []string {
	return []string{wireSource, mainSource, treeSource, limitsSource, pinSource, waitSource}
}
