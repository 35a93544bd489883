package kept

import (
	"encoding/base64"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// Output is what is shown of an output.
type Output struct {
	// Text is UTF-8, or base64 if Encoding says so: what was written is no UTF-8.
	Text     string `json:"text"`
	Encoding string `json:"encoding"`
	// Bytes is how many were written; the first ones are shown.
	Bytes     uint64 `json:"bytes"`
	Truncated bool   `json:"truncated"`
}

// Beginning is the beginning of an output. The rest is counted and dropped: to close the
// output would change what the command does. One goroutine writes; the total may be
// read from any.
type Beginning struct {
	most  int
	data  []byte
	total *atomic.Uint64 // of all streams of the call
	bytes uint64
}

// New keeps most bytes, and adds to total how many are written.
func New(most int, total *atomic.Uint64) *Beginning { return &Beginning{most: most, total: total} }

// Bytes is how many were written.
func (k *Beginning) Bytes() uint64 { return k.bytes }

// Shown is how many bytes are kept.
func (k *Beginning) Shown() int { return len(k.data) }

// Write implements io.Writer; it never fails.
func (k *Beginning) Write(p []byte) (int, error) {
	k.data = append(k.data, p[:min(len(p), k.most-len(k.data))]...)
	k.bytes += uint64(len(p))
	k.total.Add(uint64(len(p)))
	return len(p), nil
}

// Output is what is shown.
func (k *Beginning) Output() Output {
	data := k.data
	o := Output{Encoding: "utf-8", Bytes: k.bytes, Truncated: k.bytes > uint64(len(data))}
	if o.Truncated {
		data = wholeRunes(data)
	}
	if utf8.Valid(data) {
		o.Text = string(data)
		return o
	}
	o.Text, o.Encoding = base64.StdEncoding.EncodeToString(k.data), "base64"
	return o
}

// wholeRunes leaves out a last character of which only the beginning is there.
func wholeRunes(data []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if c := data[len(data)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(data[len(data)-i:]) {
				return data[:len(data)-i]
			}
			break
		}
	}
	return data
}

// Readable is the output as text for a model: what is no UTF-8 is replaced.
func (k *Beginning) Readable() string {
	return strings.ToValidUTF8(string(wholeRunes(k.data)), "\uFFFD")
}
