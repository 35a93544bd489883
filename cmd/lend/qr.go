package main

import (
	"strings"

	"rsc.io/qr"
)

// quiet is the empty border of a QR code, in modules.
const quiet = 4

// qrText draws a QR code with two rows in a line: what is dark in the code is left
// empty, as it is read best from a dark terminal. It is "" for a text that is too long,
// or wider than so many columns.
func qrText(text string, columns int) string {
	code, err := qr.Encode(text, qr.L)
	if err != nil || code.Size+2*quiet > columns {
		return ""
	}
	var b strings.Builder
	for y := -quiet; y < code.Size+quiet; y += 2 {
		for x := -quiet; x < code.Size+quiet; x++ {
			lower := y+1 < code.Size+quiet && !code.Black(x, y+1)
			switch upper := !code.Black(x, y); {
			case upper && lower:
				b.WriteRune('█')
			case upper:
				b.WriteRune('▀')
			case lower:
				b.WriteRune('▄')
			default:
				b.WriteByte(' ')
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
