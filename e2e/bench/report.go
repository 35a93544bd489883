//go:build linux

package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Report is the JSON form.
type Report struct {
	SchemaVersion int       `json:"schemaVersion"`
	When          time.Time `json:"when"`
	Machine       Machine   `json:"machine"`
	Repetitions   int       `json:"repetitions"`
	Quick         bool      `json:"quick"`
	NoSSH         string    `json:"noSsh,omitempty"`
	Rows          []Row     `json:"rows"`
	Bars          []Result  `json:"bars"`
	Missing       []string  `json:"missing,omitempty"` // bars about which there is no figure
}

// Machine says where it was measured.
type Machine struct {
	Processor  string `json:"processor"`
	Processors int    `json:"processors"`
	MemoryGiB  int    `json:"memoryGiB"`
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
}

// Row is one figure of one case; Ratio is to the first case of its group.
type Row struct {
	Group string `json:"group"`
	Case  string `json:"case"`
	Unit  string `json:"unit"`
	Figure
	Ratio *Figure `json:"ratio,omitempty"`
	Steal float64 `json:"stealPercent"`
	Error string  `json:"error,omitempty"`
}

// Result is a goal and what came out.
type Result struct {
	What    string  `json:"what"`
	Of      string  `json:"of"`
	By      string  `json:"by"`
	Unit    string  `json:"unit"`
	Bar     float64 `json:"bar"`
	Beyond  float64 `json:"beyond"`
	AtLeast bool    `json:"atLeast"`
	Ratio   Figure  `json:"ratio"`
	Verdict string  `json:"verdict"`
}

func machine() Machine {
	m := Machine{Processors: runtime.NumCPU(), Go: runtime.Version()}
	m.Processor = valueOf("/proc/cpuinfo", "model name")
	kib, _ := strconv.Atoi(strings.TrimSuffix(valueOf("/proc/meminfo", "MemTotal"), " kB"))
	m.MemoryGiB = int(math.Round(float64(kib) / (1 << 20)))
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + series(unix.ByteSliceToString(u.Release[:]))
	}
	return m
}

// series is the major and minor number of a version; what follows is the builder's.
func series(release string) string {
	parts := strings.SplitN(release, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

// valueOf reads the value of a line "name : value".
func valueOf(file, name string) string {
	b, _ := os.ReadFile(file)
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func report(s *Suite, noSSH error) Report {
	r := Report{SchemaVersion: 1, When: time.Now().UTC().Truncate(time.Second), Machine: machine(), Repetitions: s.Did, Quick: s.Quick}
	if noSSH != nil {
		r.NoSSH = noSSH.Error()
	}
	first := map[string]*Case{}
	for _, c := range s.Cases {
		first[c.Group] = cmp.Or(first[c.Group], c)
		if c.err != nil {
			r.Rows = append(r.Rows, Row{Group: c.Group, Case: c.Name, Error: c.err.Error()})
			continue
		}
		for _, unit := range c.units() {
			row := Row{Group: c.Group, Case: c.Name, Unit: unit, Figure: figure(c.of(unit)), Steal: median(c.steal)}
			if ratio, ok := ratio(c, first[c.Group], unit); ok && c != first[c.Group] {
				row.Ratio = &ratio
			}
			r.Rows = append(r.Rows, row)
		}
	}
	for _, b := range bars() {
		if v, ok := s.outcome(b); ok {
			r.Bars = append(r.Bars, Result{b.What, b.Of, b.By, b.Unit, b.Bar, b.Beyond, b.AtLeast, v, b.verdict(v.Median)})
		} else if len(s.Only) == 0 || s.added(b.Group, b.Of) {
			r.Missing = append(r.Missing, fmt.Sprintf("%s: %s", b.What, over(b.Of, b.By)))
		}
	}
	return r
}

func over(of, by string) string {
	if by == "" {
		return of
	}
	return of + " ÷ " + by
}

// Summary has a line for each bar.
func (r Report) Summary() string {
	var b strings.Builder
	for _, g := range r.Bars {
		fmt.Fprintf(&b, "%-8s %8s %s %-8s %s: %s\n", g.Verdict, show(g.Ratio.Median), g.sign(), show(g.Bar), g.What, over(g.Of, g.By))
	}
	for _, m := range r.Missing {
		fmt.Fprintf(&b, "%-8s %8s   %-8s %s\n", "no figure", "", "", m)
	}
	return b.String()
}

func (g Result) sign() string {
	if g.AtLeast {
		return "≥"
	}
	return "≤"
}

// gaps is an error if all was asked for and a bar has no figure.
func (r Report) gaps(whole bool) error {
	if !whole || len(r.Missing) == 0 {
		return nil
	}
	return fmt.Errorf("no figure for %d of the bars: %s", len(r.Missing), strings.Join(r.Missing, "; "))
}

//go:embed notes.md
var notes string

// document is the report as a page of the documentation, beside its plots.
func (r Report) document(name string) string {
	return "# Performance\n\n" +
		"Made by `go run ./e2e/bench -out docs/performance` (about eight minutes, on a machine that does nothing else; root for the long links and\n" +
		"OpenSSH). Every value is in [" + name + ".json](" + name + ".json).\n\n" +
		r.Markdown() +
		"\n![share of each goal](" + name + ".svg)\n\n![one short command](" + name + "-start.svg)\n" + notes
}

// outcome is what a bar is about; false if it was not measured.
func (s *Suite) outcome(b Bar) (Figure, bool) {
	of := s.find(b.Group, b.Of)
	if b.By != "" || of == nil {
		return ratio(of, s.find(b.Group, b.By), b.Unit)
	}
	values := of.of(b.Unit)
	return figure(values), len(values) > 0
}

// units are those of a case that are there in each repetition, in order.
func (c *Case) units() []string {
	var out []string
	for _, s := range c.samples {
		for unit := range s {
			if !slices.Contains(out, unit) {
				out = append(out, unit)
			}
		}
	}
	slices.Sort(out)
	return out
}

func show(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func (f Figure) String() string {
	return fmt.Sprintf("%s (%s–%s)", show(f.Median), show(f.Min), show(f.Max))
}

// Markdown is the report for people: the goals first, then a table for each group.
func (r Report) Markdown() string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%d × %s, %d GiB, %s, %s, %s; %d repetitions. Median (least–greatest).\n",
		m.Processors, m.Processor, m.MemoryGiB, m.Kernel, m.Go, r.When.Format("2006-01-02"), r.Repetitions)
	if r.Quick {
		b.WriteString("\nA quick look: an eighth of the work.\n")
	}
	if r.NoSSH != "" {
		fmt.Fprintf(&b, "\nOpenSSH was not measured: %s.\n", r.NoSSH)
	}
	if len(r.Bars) > 0 {
		b.WriteString("\n| what | of | by | ratio | goal | |\n|---|---|---|---|---|---|\n")
	}
	for _, g := range r.Bars {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s %s (%s) | %s |\n", g.What, g.Of, g.By, g.Ratio, g.sign(), show(g.Bar), show(g.Beyond), g.Verdict)
	}
	if len(r.Missing) > 0 && len(r.Bars) > 0 {
		fmt.Fprintf(&b, "\nNo figure: %s.\n", strings.Join(r.Missing, "; "))
	}
	for _, group := range r.groups() {
		r.table(&b, group)
	}
	return b.String()
}

func (r Report) groups() []string {
	var out []string
	for _, row := range r.Rows {
		if !slices.Contains(out, row.Group) {
			out = append(out, row.Group)
		}
	}
	return out
}

func (r Report) table(b *strings.Builder, group string) {
	var cases, units []string
	cells := map[[2]string]string{}
	for _, row := range r.Rows {
		if row.Group != group {
			continue
		}
		if !slices.Contains(cases, row.Case) {
			cases = append(cases, row.Case)
		}
		if row.Error != "" {
			cells[[2]string{row.Case, ""}] = row.Error
			continue
		}
		if !slices.Contains(units, row.Unit) {
			units = append(units, row.Unit)
		}
		cell := row.Figure.String()
		if row.Ratio != nil {
			cell += " ×" + show(row.Ratio.Median)
		}
		cells[[2]string{row.Case, row.Unit}] = cell
	}
	fmt.Fprintf(b, "\n### %s\n\n| | %s |\n|---|%s\n", group, strings.Join(units, " | "), strings.Repeat("---|", len(units)))
	for _, c := range cases {
		fmt.Fprintf(b, "| %s |", c)
		if why := cells[[2]string{c, ""}]; why != "" {
			fmt.Fprintf(b, " failed: %s |", strings.ReplaceAll(why, "\n", "; "))
		} else {
			for _, u := range units {
				fmt.Fprintf(b, " %s |", cells[[2]string{c, u}])
			}
		}
		b.WriteString("\n")
	}
}

// JSON is the report for programs, every value in it.
func (r Report) JSON() ([]byte, error) { return json.MarshalIndent(r, "", "  ") }
