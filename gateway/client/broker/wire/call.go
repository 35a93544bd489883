package wire

// Call is what a shim asks for, and lend run, which says more of it itself.
type Call struct {
	// Session is the handle of an invocation; lend run may bring a Lease instead.
	Session string
	// Name is what the shim was called as. lend run has none: it says Connector.
	Name string
	// Authority is the selector as the environment has it; HasAuthority tells whether
	// it has one, since an empty one is none that there is.
	Authority    string
	HasAuthority bool
	// Args are a command line of the CLI or, with Command, the arguments of that.
	Args []string

	// What lend run says: Lease is the text of a lease file, Options its options in JSON.
	Lease   []byte
	Options []byte
}

const (
	tagSession = 1 + iota
	tagName
	tagAuthority
	tagLease
	tagOptions
	tagArg
)

// Append appends the payload of c; the error is ErrMalformed if a bound is exceeded.
func (c *Call) Append(b []byte) ([]byte, error) {
	if len(c.Session) > maxWord || len(c.Name) > maxWord || len(c.Authority) > maxWord || len(c.Lease) > MaxLease ||
		len(c.Options) > maxText || !boundedArgs(c.Args) {
		return nil, ErrMalformed
	}
	if c.Session != "" {
		b = appendField(b, tagSession, c.Session)
	}
	if c.Name != "" {
		b = appendField(b, tagName, c.Name)
	}
	if c.HasAuthority {
		b = appendField(b, tagAuthority, c.Authority)
	}
	if len(c.Lease) > 0 {
		b = appendField(b, tagLease, c.Lease)
	}
	if len(c.Options) > 0 {
		b = appendField(b, tagOptions, c.Options)
	}
	for _, a := range c.Args {
		b = appendField(b, tagArg, a)
	}
	return b, nil
}

func boundedArgs(args []string) bool {
	total := 0
	for _, a := range args {
		total += len(a)
		if len(a) > MaxArgument {
			return false
		}
	}
	return len(args) <= MaxArguments && total <= MaxArgumentBytes
}

// ParseCall reads the payload of a Call or a Run: what Append has written and nothing
// else. The error is ErrMalformed, and the Call zero then.
func ParseCall(b []byte) (Call, error) {
	c, err := parseCall(b)
	if err != nil {
		return Call{}, err
	}
	return c, nil
}

func parseCall(b []byte) (c Call, err error) {
	last, total := byte(0), 0
	for len(b) > 0 {
		var tag byte
		var value []byte
		if tag, value, b, err = nextField(b); err != nil {
			return c, err
		}
		if tag < last || tag == last && tag != tagArg {
			return c, ErrMalformed
		}
		last = tag
		most := maxWord
		switch tag {
		case tagLease:
			most = MaxLease
		case tagOptions:
			most = maxText
		case tagArg:
			most = MaxArgument
		}
		if len(value) > most || len(value) == 0 && tag != tagAuthority && tag != tagArg {
			return c, ErrMalformed
		}
		switch tag {
		case tagSession:
			c.Session = string(value)
		case tagName:
			c.Name = string(value)
		case tagAuthority:
			c.Authority, c.HasAuthority = string(value), true
		case tagLease:
			c.Lease = append([]byte(nil), value...)
		case tagOptions:
			c.Options = append([]byte(nil), value...)
		case tagArg:
			if total += len(value); len(c.Args) == MaxArguments || total > MaxArgumentBytes {
				return c, ErrMalformed
			}
			c.Args = append(c.Args, string(value))
		default:
			return c, ErrMalformed
		}
	}
	return c, nil
}
