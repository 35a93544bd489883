package inspect

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/signature"
	"github.com/lendcli/lend/protocol/name"
)

// State says whether a release is installed. The zero value is none of them.
type State string

// The states of an installation.
const (
	Present       State = "present"       // receipt, manifest and interpreter agree
	Absent        State = "absent"        // there is no receipt, or an update has replaced it
	Invalid       State = "invalid"       // it is not what was installed
	Indeterminate State = "indeterminate" // it could not be looked at
)

// Reason says why a release is not present.
type Reason string

// The reasons, in the order of the states.
const (
	NotInstalled         Reason = "not_installed"         // absent
	Superseded           Reason = "superseded"            // absent: an update replaced it; files stay while something of it runs
	ReceiptInvalid       Reason = "receipt_invalid"       // invalid: it cannot be understood
	FilesChanged         Reason = "files_changed"         // invalid: manifest or bytes differ from the receipt
	RuntimeAbsent        Reason = "runtime_absent"        // invalid: its interpreter was removed
	RuntimeReplaced      Reason = "runtime_replaced"      // invalid: another interpreter is in its place
	SignatureRequired    Reason = "signature_required"    // invalid: no trusted publisher signed it, and the owner requires that
	SignatureInvalid     Reason = "signature_invalid"     // invalid: what is there is no signature of it
	Unreadable           Reason = "unreadable"            // indeterminate: the system did not let it be read
	PublishersUnreadable Reason = "publishers_unreadable" // indeterminate: nobody knows what is required, and nothing starts
	Interrupted          Reason = "interrupted"           // indeterminate: the time was over
)

// Result is what one release was found to be. It is a value; holders must not change
// what it refers to.
type Result struct {
	Connector name.ConnectorKey
	Version   name.Version
	State     State
	Reason    Reason // "" if present
	// Err is the cause, for the owner alone: it can hold paths. Nil if present.
	Err error
	// Release is what receipt and manifest say, where they could be read and agree;
	// else nil. It is not nil if present.
	Release *install.Release
	// Verified says that every byte was hashed, and is what was installed.
	Verified bool
}

// failed ends an inspection with its cause.
func (r Result) failed(err error) Result {
	r.State, r.Reason = classify(err)
	r.Err, r.Verified = err, false
	return r
}

// Fix is what the owner can do about it, in commands; "" if it is present.
func (r Result) Fix() string {
	var required *signature.RequiredError
	var list *signature.FileError
	key := r.Connector.String()
	switch {
	case r.State == Present:
		return ""
	case errors.As(r.Err, &required):
		return required.Fix()
	case errors.As(r.Err, &list):
		return list.Fix()
	}
	switch r.Reason {
	case RuntimeAbsent, RuntimeReplaced:
		return r.fixRuntime()
	case FilesChanged:
		return "lend connector add SOURCE, with what it was added from"
	case ReceiptInvalid:
		return r.fixReceipt()
	case SignatureInvalid:
		return "lend connector remove " + key + ", then add it again"
	case NotInstalled, Superseded, Unreadable, Interrupted, SignatureRequired, PublishersUnreadable:
	}
	return "lend connector verify " + key
}

// runtimeError is what is wrong with the receipt of an interpreter.
type runtimeError struct {
	name string
	err  error
}

func (e *runtimeError) Error() string { return "runtime " + e.name + ": " + e.err.Error() }

func (e *runtimeError) Unwrap() error { return e.err }

func (r Result) fixRuntime() string {
	runtime := "NAME"
	if r.Release != nil {
		runtime = strings.Replace(r.Release.Runtime, "@", " --version ", 1)
	}
	return "lend runtime add " + runtime + ", from what it came from, then lend connector add DIRECTORY again"
}

// fixReceipt is what mends a release that nobody understands: a source takes its place.
func (r Result) fixReceipt() string {
	var runtime *runtimeError
	var damage *depot.Damage
	switch {
	case errors.As(r.Err, &runtime):
		return r.fixRuntime()
	case errors.As(r.Err, &damage) && damage.Link() && !r.Connector.IsZero():
		return "put its directory back, or lend connector remove " + r.Connector.String() + ", which takes the link alone away"
	case r.Version.IsZero():
		return "put its directory in the store back as it was, or take it away"
	case errors.Is(r.Err, depot.ErrFormat):
		return "lend connector add --replace SOURCE, with what it was added from"
	}
	return "lend connector add SOURCE, with what it was added from"
}

// classify decides what an error says about an installation. What is not known to
// mean less is invalid.
func classify(err error) (State, Reason) {
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return Indeterminate, Interrupted
	case unreadable(err):
		return Indeterminate, Unreadable
	case errors.Is(err, install.ErrNoRuntime):
		return Invalid, RuntimeAbsent
	case errors.Is(err, signature.ErrUnsigned) || errors.Is(err, signature.ErrUntrusted):
		return Invalid, SignatureRequired
	case errors.Is(err, signature.ErrInvalid):
		return Invalid, SignatureInvalid
	case errors.Is(err, install.ErrTampered):
		return Invalid, FilesChanged
	case errors.Is(err, install.ErrNotInstalled):
		return Absent, NotInstalled
	default:
		return Invalid, ReceiptInvalid
	}
}

// unreadable tells whether the system, and not what is on the disk, is the cause.
func unreadable(err error) bool {
	var errno syscall.Errno
	return errors.Is(err, fs.ErrPermission) || errors.As(err, &errno) && slices.Contains([]syscall.Errno{
		syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EBUSY, syscall.EAGAIN, syscall.EINTR, syscall.ETIMEDOUT,
	}, errno)
}
