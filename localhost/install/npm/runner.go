package npm

import "context"

// Command is one program run. It is complete: nothing is inherited.
type Command struct {
	Path string   // absolute path of the executable
	Args []string // argv[0] included
	Env  []string // NAME=VALUE, all of it
	Dir  string   // absolute working directory
}

// Runner runs a program to its end, without standard input. output is what it
// wrote on both outputs, its tail where that is bounded; an exit status other than
// 0 is an error. It ends the program, and all that it started, when ctx is done.
type Runner interface {
	Run(ctx context.Context, c Command) (output []byte, err error)
}
