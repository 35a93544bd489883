//go:build unix

// Command fx is the Connector program of the tests: each subcommand does one thing
// that a real CLI might do to a gateway. Its own start is counted in the file that
// FX_COUNT names, so that a test can prove that nothing ran.
//
//	fx args [A…]          print the arguments as JSON
//	fx env                print the environment, sorted, as JSON
//	fx cwd                print the working directory
//	fx print N            print N bytes of a fixed pattern
//	fx errprint N         the same on standard error
//	fx cat                copy standard input to standard output
//	fx lines              upper-case each line as it comes
//	fx sum                print the length and SHA-256 of standard input
//	fx exit N             exit with status N
//	fx signal N           die of signal N
//	fx sleep D            sleep for a duration
//	fx deaf D             ignore SIGTERM, read nothing, sleep
//	fx closeout           close standard output first, then read input to its end
//	fx setsid D           leave a detached grandchild that sleeps, and exit
//	fx tree N D           start N children that sleep, at once, and wait for them
//	fx yes                print "y" for ever
//	fx once ID N MS       write ID to the file FX_ONCE, print ID, wait MS ms, exit with status N
//	fx read FILE          print a file
//	fx write FILE         write a line to a file
//	fx link TARGET NAME   make a symbolic link
package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sort"
	"strconv"
	"syscall"
	"time"
)

func main() {
	count()
	if len(os.Args) < 2 {
		fail("usage: fx SUBCOMMAND")
	}
	args := os.Args[2:]
	commands := map[string]func([]string){
		"args": printArgs, "env": printEnv, "cwd": printCwd, "print": printBytes, "errprint": printErr, "cat": cat,
		"lines": lines, "sum": sum, "exit": exit, "signal": die, "sleep": sleep, "deaf": deaf, "closeout": closeOut,
		"setsid": detach, "tree": tree, "yes": yes, "once": once, "read": read, "write": write, "link": link,
	}
	f, ok := commands[os.Args[1]]
	if !ok {
		fail("unknown subcommand " + strconv.Quote(os.Args[1]))
	}
	f(args)
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, "fx:", text)
	os.Exit(64)
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func count() {
	path := os.Getenv("FX_COUNT")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	check(err)
	_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
	check(err)
	check(f.Close())
}

func first(args []string) string {
	if len(args) == 0 {
		fail("an argument is missing")
	}
	return args[0]
}

func number(args []string) int {
	n, err := strconv.Atoi(first(args))
	check(err)
	return n
}

func duration(args []string) time.Duration {
	d, err := time.ParseDuration(first(args))
	check(err)
	return d
}

func printJSON(v any) { check(json.NewEncoder(os.Stdout).Encode(v)) }

func printArgs(args []string) {
	if args == nil {
		args = []string{}
	}
	printJSON(args)
}

func printEnv([]string) {
	env := os.Environ()
	sort.Strings(env)
	printJSON(env)
}

func printCwd([]string) {
	dir, err := os.Getwd()
	check(err)
	fmt.Println(dir)
}

// Pattern is the byte at each offset of print's output.
func pattern(offset int) byte { return byte("0123456789abcdefghijklmnopqrstuvwxyz\n"[offset%37]) }

func emit(w io.Writer, n int) {
	b := bufio.NewWriterSize(w, 64<<10)
	for i := range n {
		check(b.WriteByte(pattern(i)))
	}
	check(b.Flush())
}

func printBytes(args []string) { emit(os.Stdout, number(args)) }
func printErr(args []string)   { emit(os.Stderr, number(args)) }

func cat([]string) {
	_, err := io.Copy(os.Stdout, os.Stdin)
	check(err)
}

func lines([]string) {
	s := bufio.NewScanner(os.Stdin)
	for s.Scan() {
		_, err := os.Stdout.Write(append(bytes.ToUpper(s.Bytes()), '\n'))
		check(err)
	}
	check(s.Err())
}

func sum([]string) {
	h := sha256.New()
	n, err := io.Copy(h, os.Stdin)
	check(err)
	fmt.Printf("%d %x\n", n, h.Sum(nil))
}

func exit(args []string) { os.Exit(number(args)) }

func die(args []string) {
	check(syscall.Kill(os.Getpid(), syscall.Signal(number(args))))
	select {}
}

func sleep(args []string) { time.Sleep(duration(args)) }

func deaf(args []string) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	fmt.Println("deaf")
	time.Sleep(duration(args))
}

func closeOut([]string) {
	check(os.Stdout.Close())
	_, err := io.Copy(io.Discard, os.Stdin)
	check(err)
}

func tree(args []string) {
	if len(args) != 2 {
		fail("usage: fx tree N D")
	}
	n := number(args[:1])
	var children []*exec.Cmd
	for range n {
		cmd := exec.Command("/proc/self/exe", "sleep", duration(args[1:]).String())
		check(cmd.Start())
		children = append(children, cmd)
	}
	for _, cmd := range children {
		check(cmd.Wait())
	}
}

func detach(args []string) {
	cmd := exec.Command("/proc/self/exe", "sleep", duration(args).String())
	cmd.Env = os.Environ()
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	check(cmd.Start())
	fmt.Println(cmd.Process.Pid)
}

func yes([]string) {
	b := bytes.Repeat([]byte("y\n"), 32<<10)
	for {
		_, err := os.Stdout.Write(b)
		check(err)
	}
}

// once says who it is in one write each: in a file that outlives every crash, and on
// standard output.
func once(args []string) {
	id := first(args)
	status, wait := number(args[1:]), number(args[2:])
	f, err := os.OpenFile(os.Getenv("FX_ONCE"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	check(err)
	_, err = f.WriteString(id + "\n")
	check(err)
	check(f.Close())
	fmt.Println(id)
	time.Sleep(time.Duration(wait) * time.Millisecond)
	os.Exit(status)
}

func read(args []string) {
	b, err := os.ReadFile(first(args))
	check(err)
	_, err = os.Stdout.Write(b)
	check(err)
}

func write(args []string) {
	check(os.WriteFile(first(args), []byte("written\n"), 0o600))
}

func link(args []string) {
	if len(args) != 2 {
		fail("usage: fx link TARGET NAME")
	}
	check(os.Symlink(args[0], args[1]))
}
