//go:build linux

package main

import (
	"fmt"
	"html"
	"strings"
)

// plot draws the goals: one line each, from nothing to twice the goal, the goal in
// the middle.
func (r Report) plot() []byte {
	const (
		left, width, line, top = 430, 360, 24, 40
		name                   = `<text x="%d" y="%d" text-anchor="end">%s</text>`
		bar                    = `<rect x="%d" y="%d" width="%d" height="14" fill="%s"/>`
	)
	colour := map[string]string{missed: "#c0392b", reached: "#2e86c1", beyond: "#1e8449"}
	var b strings.Builder
	height := top + line*len(r.Bars) + 20
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`, left+width+150, height)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>`)
	fmt.Fprintf(&b, `<text x="%d" y="20" font-weight="bold">share of the goal (the line); shorter is better where the goal is a most</text>`, 20)
	for i, g := range r.Bars {
		y := top + i*line
		share := min(g.Ratio.Median/g.Bar, 2)
		fmt.Fprintf(&b, name, left-8, y+12, html.EscapeString(g.What+": "+over(g.Of, g.By)))
		fmt.Fprintf(&b, bar, left, y, int(share*width/2), colour[g.Verdict])
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s (%s %s)</text>`, left+width+8, y+12, show(g.Ratio.Median), g.sign(), show(g.Bar))
	}
	fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="black"/>`, left+width/2, top-8, left+width/2, height-16)
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// plotStart draws how long one short command takes, by each way: the median, and a
// line to the 99th percentile.
func (r Report) plotStart() []byte {
	const left, width, line, top = 260, 420, 24, 40
	type way struct{ p50, p99 float64 }
	ways, names, most := map[string]*way{}, []string{}, 1.0
	for _, row := range r.Rows {
		if row.Group != groupStart || row.Error != "" {
			continue
		}
		if ways[row.Case] == nil {
			ways[row.Case] = &way{}
			names = append(names, row.Case)
		}
		switch row.Unit {
		case p50:
			ways[row.Case].p50 = row.Median
		case p99:
			ways[row.Case].p99 = row.Median
		}
		most = max(most, ways[row.Case].p50, ways[row.Case].p99)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`, left+width+120, top+line*len(names)+20)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>`)
	fmt.Fprintf(&b, `<text x="20" y="20" font-weight="bold">/bin/true, start to exit: median (bar) and 99th percentile (line), µs</text>`)
	for i, name := range names {
		y, w := top+i*line, ways[name]
		length := func(v float64) int { return int(v / most * width) }
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y+12, html.EscapeString(name))
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#7f8c8d" stroke-width="2"/>`, left, y+7, left+length(w.p99), y+7)
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="14" fill="#2e86c1"/>`, left, y, length(w.p50))
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s / %s</text>`, left+max(length(w.p50), length(w.p99))+8, y+12, show(w.p50), show(w.p99))
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
