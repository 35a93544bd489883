package wire

// Exit is how a call ended.
type Exit struct {
	// Status is the exit status that the caller returns.
	Status byte
	// Ended says that the command's end is known from whoever ran it. A Status of 0
	// without it is none: see Returns.
	Ended bool
	// Message and Hint are lines for people, "" for none.
	Message, Hint string
	// Detail is what lend run shows as JSON.
	Detail []byte
}

// StatusUnknown is the exit status of a call whose outcome is unknown.
const StatusUnknown = 255

const (
	tagStatus = 1 + iota
	tagEnded
	tagMessage
	tagHint
	tagDetail
)

// Returns is the exit status to return: never 0 without an end.
func (e *Exit) Returns() int {
	if e.Status == 0 && !e.Ended {
		return StatusUnknown
	}
	return int(e.Status)
}

// Append appends the payload of e. Texts that are too long are cut.
func (e *Exit) Append(b []byte) []byte {
	b = appendField(b, tagStatus, []byte{e.Status})
	if e.Ended {
		b = appendField(b, tagEnded, "")
	}
	if e.Message != "" {
		b = appendField(b, tagMessage, e.Message[:min(len(e.Message), maxText)])
	}
	if e.Hint != "" {
		b = appendField(b, tagHint, e.Hint[:min(len(e.Hint), maxText)])
	}
	if len(e.Detail) > 0 && len(e.Detail) <= maxDetail {
		b = appendField(b, tagDetail, e.Detail)
	}
	return b
}

// ParseExit reads the payload of an Exit. The error is ErrMalformed, and the Exit zero
// then, which Returns says is unknown.
func ParseExit(b []byte) (Exit, error) {
	e, err := parseExit(b)
	if err != nil {
		return Exit{}, err
	}
	return e, nil
}

func parseExit(b []byte) (e Exit, err error) {
	last := byte(0)
	for len(b) > 0 {
		var tag byte
		var value []byte
		if tag, value, b, err = nextField(b); err != nil {
			return e, err
		}
		if tag <= last || last == 0 && (tag != tagStatus || len(value) != 1) {
			return e, ErrMalformed
		}
		last = tag
		switch {
		case tag == tagStatus:
			e.Status = value[0]
		case tag == tagEnded && len(value) == 0:
			e.Ended = true
		case tag == tagMessage && len(value) > 0 && len(value) <= maxText:
			e.Message = string(value)
		case tag == tagHint && len(value) > 0 && len(value) <= maxText:
			e.Hint = string(value)
		case tag == tagDetail && len(value) > 0 && len(value) <= maxDetail:
			e.Detail = append([]byte(nil), value...)
		default:
			return e, ErrMalformed
		}
	}
	if last == 0 {
		return e, ErrMalformed
	}
	return e, nil
}
