// Command mutate takes the guards of the admission path away, one at a time, and
// demands that a test fails for each.
//
// A guard is found in the source, not in a list: an if or a case that ends in a
// refusal (an error, a bool, a text, or one that is kept and returned later), each
// alternative of its condition, also of what has to hold beside others; each operand of
// a condition that is returned; an if or a case that lets a request pass before a
// refusal; an if that asks the next check while there is no error; the refusing case of
// a value or a type; and in functions that path.go names, each of the two sides of a min
// or max. So a guard that is added tomorrow is covered tomorrow. Which files and
// functions are the admission path is the table in path.go. Not found are calls for
// their effect alone (a lock, a strict mode of a decoder) and the order of checks.
//
// All guards are switched in one build per test package, by an overlay: the working
// tree is not touched. Each test runs once with all guards in place, and says which
// guards made a difference; then each guard is taken away, and the tests that it made
// a difference to run, the fastest first, until one fails. A guard that survives is
// named in allowed.txt with the reason, or is a defect: none is there now.
//
//	go run ./e2e/mutate [-only REGEXP [-own]] [-list] [-j 2] [-v]
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "take away only the guards whose key matches this")
	own := flag.Bool("own", false, "run the tests of the guards' own packages only")
	list := flag.Bool("list", false, "list the guards and stop")
	workers := flag.Int("j", 2, "tests that run at the same time")
	verbose := flag.Bool("v", false, "say what is done")
	flag.Parse()
	if err := run(*only, *own, *list, *workers, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(pattern string, own, list bool, workers int, verbose bool) error {
	only, err := regexp.Compile(pattern)
	if err != nil {
		return fmt.Errorf("read -only: %w", err)
	}
	root, err := findRoot()
	if err != nil {
		return err
	}
	guards, err := findAll(root)
	if err != nil {
		return err
	}
	allowed, err := readAllowed(filepath.Join(root, "e2e", "mutate", "allowed.txt"))
	if err != nil {
		return err
	}
	if list {
		for _, g := range guards {
			fmt.Printf("%-60s %s:%d\n", g.Key, g.File, g.Line)
		}
		return nil
	}
	temp, err := os.MkdirTemp("", "lend-mutate-")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	began := time.Now()
	lab := &lab{root: root, temp: temp, workers: max(1, workers), log: func(string, ...any) {}}
	if verbose {
		lab.log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	}
	if err := lab.prepare(guards, packagesFor(guards, only, own)); err != nil {
		return err
	}
	chosen := slices.DeleteFunc(slices.Clone(guards), func(g *guard) bool { return !only.MatchString(g.Key) })
	lab.takeAway(chosen)
	return report(chosen, allowed, pattern == "", time.Since(began))
}

// report prints the table, and fails if a guard survived that nothing allows, or if
// what is allowed is not there or does not survive.
func report(guards []*guard, allowed map[string]string, whole bool, took time.Duration) error {
	killed, tolerated := 0, 0
	var bad []string
	seen := map[string]bool{}
	for _, g := range guards {
		seen[g.Key] = true
		reason, ok := allowed[g.Key]
		switch {
		case g.KilledBy != "":
			killed++
			fmt.Printf("killed   %-70s %s:%d  %s\n", g.Key, g.File, g.Line, g.KilledBy)
			if ok {
				bad = append(bad, fmt.Sprintf("STALE    %s is killed by %s: take it out of allowed.txt", g.Key, g.KilledBy))
			}
		case ok:
			tolerated++
			fmt.Printf("allowed  %-70s %s:%d  %s\n", g.Key, g.File, g.Line, reason)
		default:
			bad = append(bad, fmt.Sprintf("SURVIVED %-70s %s:%d  %s", g.Key, g.File, g.Line, g.survival()))
		}
	}
	if whole {
		for key := range allowed {
			if !seen[key] {
				bad = append(bad, "STALE    "+key+" is in allowed.txt, and is no guard")
			}
		}
	}
	slices.Sort(bad)
	for _, b := range bad {
		fmt.Println(b)
	}
	fmt.Printf("%d guards: %d killed, %d allowed, %d problems, in %s\n", len(guards), killed, tolerated, len(bad), took.Round(time.Second))
	if len(bad) > 0 {
		return fmt.Errorf("%d problems", len(bad))
	}
	return nil
}

// readAllowed reads "KEY — REASON" lines.
func readAllowed(file string) (map[string]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the guards that may survive: %w", err)
	}
	out := map[string]string{}
	for i, line := range strings.Split(string(b), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, reason, ok := strings.Cut(line, " — ")
		if !ok || len(reason) < 10 || out[key] != "" {
			return nil, fmt.Errorf("allowed.txt:%d: want a key, once, and a reason", i+1)
		}
		out[key] = reason
	}
	return out, nil
}

func findRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, statErr := os.Stat(filepath.Join(dir, "go.mod")); statErr == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", fmt.Errorf("no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
	return "", fmt.Errorf("find the top of the tree: %w", err)
}
