package stdio

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// errLong says that a line was over the bound. It has been passed over.
var errLong = errors.New("the line is too long")

// line is one line, or why there is none.
type line struct {
	data []byte
	err  error
}

// readLine reads a line of at most most bytes, without its end. What the input ends with
// is a line, too. The error is errLong, after which the next line can be read, or the
// input's.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var out []byte
	said, long := false, false
	for {
		part, err := r.ReadSlice('\n')
		said = said || len(part) > 0
		whole := err == nil
		if whole {
			part = part[:len(part)-1]
		}
		if long = long || len(out)+len(part) > most+1; long { // one more for a carriage return
			out = nil
		} else {
			out = append(out, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case !whole && (!errors.Is(err, io.EOF) || !said):
			return nil, err
		}
		if out = bytes.TrimSuffix(out, []byte("\r")); long || len(out) > most {
			return nil, errLong
		}
		return bytes.TrimSpace(out), nil
	}
}
