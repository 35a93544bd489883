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
		fmt.Fprintf(&b, name, left-8, y+12, html.EscapeString(g.What+": "+g.Of+" ÷ "+g.By))
		fmt.Fprintf(&b, bar, left, y, int(share*width/2), colour[g.Verdict])
		sign := "≤"
		if g.AtLeast {
			sign = "≥"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s (%s %s)</text>`, left+width+8, y+12, show(g.Ratio.Median), sign, show(g.Bar))
	}
	fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="black"/>`, left+width/2, top-8, left+width/2, height-16)
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
