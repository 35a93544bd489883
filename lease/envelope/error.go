package envelope

// Fault names the check that refused. Their order is that of the checks.
type Fault uint8

// The faults. The zero value is none of them.
const (
	FaultSize        Fault = iota + 1 // empty, or larger than MaxSize
	FaultKeyType                      // the signing key is not Ed25519
	FaultSignature                    // the signature is wrong, or of another domain
	FaultPayloadType                  // the envelope holds something else
	FaultEncoding                     // not the canonical encoding, or unknown fields
	FaultSigner                       // signed, or to be signed, by another key
)

// Error says why bytes are refused, or will not be sealed.
type Error struct {
	Fault Fault
	// Detail is more for people: constant, or a number; may be "".
	Detail string
}

func (e *Error) Error() string {
	s := [...]string{
		"refused", "empty, or larger than 8 KiB", "not signed by an Ed25519 key", "the signature is wrong",
		"the envelope holds something else", "not in canonical encoding", "signed by another key",
	}[min(e.Fault, FaultSigner)]
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return "envelope: " + s
}

func refuse(f Fault, detail string) *Error { return &Error{Fault: f, Detail: detail} }
