package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of one run of tests.
const (
	surveyTimeout = 2 * time.Minute
	mutantTimeout = 45 * time.Second
	// slowTest is what takes too long to be run for each guard.
	slowTest = 25 * time.Second
)

// test is one top-level test of a package.
type test struct {
	pkg, name string
	took      time.Duration
}

func (t *test) String() string { return t.pkg + "." + t.name }

// lab builds the tests with every guard switched, and runs them.
type lab struct {
	root, temp string
	workers    int
	log        func(string, ...any)
	tests      []*test
	quiet      []string // packages whose generated tests would write what made them fail
}

// helper is what each package gets: whether a guard is taken away. Asking for it means
// that the guard makes a difference now, which the survey is told once.
const helper = `package %s

import (
	"os"
	"strconv"
	"sync"
)

var (
	lendMutant, _ = strconv.Atoi(os.Getenv("LEND_MUTANT"))
	lendHits      = os.Getenv("LEND_MUTANT_HITS")
	lendSeen      sync.Map
)

func lendTaken(id int) bool {
	if lendHits != "" {
		if _, again := lendSeen.LoadOrStore(id, true); !again {
			if f, err := os.OpenFile(lendHits, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
				_, _ = f.WriteString(strconv.Itoa(id) + "\n")
				_ = f.Close()
			}
		}
	}
	return id == lendMutant
}

func lendBound[T comparable](id int, bounded, free T) T {
	if bounded != free && lendTaken(id) {
		return free
	}
	return bounded
}
`

// switched is src with a switch in each of the guards, which do not overlap unless one
// holds another.
func switched(src []byte, guards []*guard) []byte {
	type edit struct {
		at    int
		order int // of edits at one place: the outer parenthesis comes first, and last
		text  string
	}
	var edits []edit
	for _, g := range guards {
		if g.clause {
			edits = append(edits, edit{g.start, g.ID, fmt.Sprintf(" if lendTaken(%d) { break };", g.ID)})
			continue
		}
		op, not := "&&", "!"
		if g.pass {
			op, not = "||", ""
		}
		open, end := "((", fmt.Sprintf(") %s %slendTaken(%d))", op, not, g.ID)
		if g.free != "" {
			open, end = fmt.Sprintf("lendBound(%d, ", g.ID), ", "+g.free+")"
		}
		length := g.end - g.start
		edits = append(edits, // two bounds of one call are one within the other
			edit{g.start, (1<<20-length)<<12 + g.ID, open},
			edit{g.end, (-1<<20+length)<<12 - g.ID, end})
	}
	slices.SortStableFunc(edits, func(a, b edit) int {
		if a.at != b.at {
			return a.at - b.at
		}
		return a.order - b.order
	})
	var out bytes.Buffer
	last := 0
	for _, e := range edits {
		out.Write(src[last:e.at])
		out.WriteString(e.text)
		last = e.at
	}
	out.Write(src[last:])
	return out.Bytes()
}

// prepare writes the overlay, builds the tests of the packages and surveys them.
func (l *lab) prepare(guards []*guard, packages []string) error {
	overlay, err := l.overlay(guards)
	if err != nil {
		return err
	}
	for _, p := range packages {
		began := time.Now()
		cmd := exec.CommandContext(context.Background(), "go", "test", "-c", "-overlay", overlay, "-o", l.binary(p), "./"+p)
		cmd.Dir = l.root
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build the tests of %s: %w\n%s", p, err, out)
		}
		if _, err := l.output(p, nil, "-rapid.nofailfile", "-test.list", "none"); err == nil {
			l.quiet = append(l.quiet, p)
		}
		names, err := l.output(p, nil, "-test.list", ".*")
		if err != nil {
			return fmt.Errorf("list the tests of %s: %w", p, err)
		}
		n := 0
		for _, name := range strings.Fields(names) {
			if regexp.MustCompile(`^(Test|Example|Fuzz)\w+$`).MatchString(name) && name != "TestMain" &&
				!strings.Contains(name, "Allocat") { // the switches allocate
				l.tests = append(l.tests, &test{pkg: p, name: name})
				n++
			}
		}
		l.log("built %s: %d tests, %s", p, n, time.Since(began).Round(time.Millisecond))
	}
	return l.survey(guards)
}

func (l *lab) overlay(guards []*guard) (string, error) {
	byFile := map[string][]*guard{}
	for _, g := range guards {
		byFile[g.File] = append(byFile[g.File], g)
	}
	replace := map[string]string{}
	put := func(path, at string, content []byte) error {
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return err
		}
		replace[filepath.Join(l.root, path)] = at
		return os.WriteFile(at, content, 0o600)
	}
	for file, own := range byFile {
		src, err := os.ReadFile(filepath.Join(l.root, file))
		if err != nil {
			return "", fmt.Errorf("read source: %w", err)
		}
		dir := filepath.Dir(file)
		added := dir + "/lend_mutant.go"
		if err := errors.Join(
			put(file, filepath.Join(l.temp, "src", file), switched(src, own)),
			put(added, filepath.Join(l.temp, "src", added), fmt.Appendf(nil, helper, packageName(src))),
		); err != nil {
			return "", fmt.Errorf("write overlay: %w", err)
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	file := filepath.Join(l.temp, "overlay.json")
	return file, os.WriteFile(file, b, 0o600)
}

func packageName(src []byte) string {
	m := regexp.MustCompile(`(?m)^package (\w+)`).FindSubmatch(src)
	return string(m[1])
}

func (l *lab) binary(pkg string) string {
	return filepath.Join(l.temp, "bin", strings.ReplaceAll(pkg, "/", "_")+".test")
}

func (l *lab) output(pkg string, env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if slices.Contains(l.quiet, pkg) {
		args = append([]string{"-rapid.nofailfile"}, args...)
	}
	cmd := exec.CommandContext(ctx, l.binary(pkg), args...)
	cmd.Dir = filepath.Join(l.root, pkg)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 5 * time.Second // what the test started may hold the output
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// survey runs each test once with all guards in place.
func (l *lab) survey(guards []*guard) error {
	began := time.Now()
	byID := map[int]*guard{}
	for _, g := range guards {
		byID[g.ID] = g
	}
	var mu sync.Mutex
	var failed []string
	l.each(len(l.tests), func(i int) {
		t := l.tests[i]
		hits := filepath.Join(l.temp, "hits-"+strconv.Itoa(i))
		out, err := "", error(nil)
		for range 2 { // the machine may be busy
			start := time.Now()
			out, err = l.output(t.pkg, []string{"LEND_MUTANT_HITS=" + hits}, "-test.run", "^"+t.name+"$", "-test.timeout", surveyTimeout.String())
			t.took = time.Since(start)
			if err == nil {
				break
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s fails with all guards in place: %v\n%s", t, err, tail(out)))
			return
		}
		if t.took > slowTest {
			l.log("%s takes %s: not used", t, t.took.Round(time.Second))
			return
		}
		b, _ := os.ReadFile(hits) // none means no hits
		for _, id := range strings.Fields(string(b)) {
			n, _ := strconv.Atoi(id)
			if g := byID[n]; g != nil && !slices.Contains(g.candidates, t) {
				g.candidates = append(g.candidates, t)
			}
		}
	})
	for _, f := range failed {
		fmt.Fprintln(os.Stderr, f)
	}
	for _, g := range guards {
		slices.SortStableFunc(g.candidates, func(a, b *test) int { return int(a.took - b.took) })
	}
	l.log("surveyed %d tests in %s, %d of them fail", len(l.tests), time.Since(began).Round(time.Second), len(failed))
	if len(failed) > len(l.tests)/10 {
		return fmt.Errorf("%d tests fail with all guards in place", len(failed))
	}
	return nil
}

func tail(s string) string { return s[max(0, len(s)-1500):] }

// each calls f for 0 to n-1, some at the same time.
func (l *lab) each(n int, f func(int)) {
	var all sync.WaitGroup
	next := make(chan int)
	for range l.workers {
		all.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

// takeAway takes each guard away, and looks for a test that fails.
func (l *lab) takeAway(guards []*guard) {
	l.each(len(guards), func(i int) {
		g := guards[i]
		began := time.Now()
		l.try(g)
		l.log("%4d/%d %-12s %s (%s, %d candidates) %s", i+1, len(guards), map[bool]string{true: "killed", false: "SURVIVED"}[g.KilledBy != ""],
			g.Key, time.Since(began).Round(10*time.Millisecond), len(g.candidates), g.KilledBy)
	})
}

// try runs the candidates of a guard without it: the fastest alone, then more at once.
func (l *lab) try(g *guard) {
	rest := g.candidates
	for size := 1; len(rest) > 0; size *= 3 {
		batch := rest[:min(size, len(rest))]
		rest = rest[len(batch):]
		for _, pkg := range packagesOf(batch) {
			var names []string
			limit := mutantTimeout // a batch that is only slow kills nothing
			for _, t := range batch {
				if t.pkg == pkg {
					names = append(names, t.name)
					limit += 4 * t.took
				}
			}
			g.tried += len(names)
			out, err := l.output(pkg, []string{"LEND_MUTANT=" + strconv.Itoa(g.ID)},
				"-test.run", "^("+strings.Join(names, "|")+")$", "-test.failfast", "-test.timeout", limit.String())
			if err != nil {
				g.KilledBy = pkg + "." + failedTest(out, names)
				return
			}
		}
	}
}

func packagesOf(tests []*test) (out []string) {
	for _, t := range tests {
		if !slices.Contains(out, t.pkg) {
			out = append(out, t.pkg)
		}
	}
	return out
}

// failedTest is the test that failed, or that ran when everything ended.
func failedTest(out string, ran []string) string {
	if m := regexp.MustCompile(`--- FAIL: ([\w/-]+)`).FindStringSubmatch(out); m != nil {
		return m[1]
	}
	if len(ran) == 1 {
		return ran[0] + " (it ends the program)"
	}
	return "one of " + strings.Join(ran[:min(3, len(ran))], ", ")
}
