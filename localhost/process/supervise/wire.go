package supervise

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"runtime"
)

// Argv0 is the whole argument vector of a supervisor, which is how Main knows that
// it is to become one.
const Argv0 = "lend: supervisor"

// Bounds of a message, in bytes.
const (
	// HeaderSize is the size of every message without its payload.
	HeaderSize = 24
	// MaxPayload bounds the payload of one message; a longer request continues.
	MaxPayload = 32 << 10
)

// Kind is the type of a message on the socket.
type Kind uint8

// The kinds. The gateway sends the first four, a supervisor the others.
const (
	Start     Kind = iota + 1 // Value: bytes of the request, of which the payload is the first part; with descriptors
	More                      // payload: the next part of the request
	Terminate                 // SIGTERM to the child's process group and to every process adopted so far
	Kill                      // SIGKILL to all, until none is left
	Hello                     // Extra: ID; the supervisor is set up
	Started                   // Value: process ID
	Failed                    // Value: errno; nothing runs and the supervisor is idle
	Exited                    // Value: wait status; Extra: nanoseconds from start to exit
	Empty                     // no process is left and the supervisor is idle
)

// Message is the fixed part of every message. Seq counts the operations of one
// supervisor, so that a late command never reaches the next operation.
type Message struct {
	Kind  Kind
	Value uint32
	Seq   uint64
	Extra uint64

	Stdin     bool // on Start: three descriptors come along; else two, and 0 is the null device
	Terminal  bool // on Start: the child stays in the session and the process group
	Last      bool // on Exited: Empty at the same time
	Directory bool // on Failed: it was the working directory, not the executable
	Limited   bool // on Exited: the tree had more tasks than it may, and was killed
}

// flags lists the booleans of m, the lowest bit first.
func (m *Message) flags() [5]*bool {
	return [...]*bool{&m.Stdin, &m.Terminal, &m.Last, &m.Directory, &m.Limited}
}

// Append appends the HeaderSize bytes of m to b.
func (m Message) Append(b []byte) []byte {
	var flags byte
	for i, set := range m.flags() {
		if *set {
			flags |= 1 << i
		}
	}
	b = append(b, byte(m.Kind), flags, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, m.Value)
	b = binary.LittleEndian.AppendUint64(b, m.Seq)
	return binary.LittleEndian.AppendUint64(b, m.Extra)
}

var errMalformed = errors.New("malformed supervisor message")

// ParseMessage splits one received message into its fixed part and its payload,
// which is part of b.
func ParseMessage(b []byte) (Message, []byte, error) {
	if len(b) < HeaderSize || b[1] > 0x1f || b[2] != 0 || b[3] != 0 {
		return Message{}, nil, errMalformed
	}
	m := Message{
		Kind:  Kind(b[0]),
		Value: binary.LittleEndian.Uint32(b[4:]),
		Seq:   binary.LittleEndian.Uint64(b[8:]),
		Extra: binary.LittleEndian.Uint64(b[16:]),
	}
	for i, set := range m.flags() {
		*set = b[1]&(1<<i) != 0
	}
	payload := b[HeaderSize:]
	if m.Kind < Start || m.Kind > Empty || len(payload) > MaxPayload || (len(payload) > 0 && m.Kind > More) {
		return Message{}, nil, errMalformed
	}
	return m, payload, nil
}

// Request is what a Start asks for; see process.Spec. No string holds a NUL.
type Request struct {
	Path, Dir string
	Args, Env []string
	// Cgroup is the directory that the child joins; "" means none.
	Cgroup string
	// Processes bounds the tasks of the tree, Memory the bytes of each process; 0
	// means no bound.
	Processes int
	Memory    int64
	// Pin is the state that the file at Path must have; zero means any.
	Pin Pin
}

// Pin is one state of one file: whatever changes its content, mode or owner gives
// another. Times are nanoseconds since 1970. No file has the zero Pin.
type Pin struct {
	Device, Inode           uint64
	Size, Modified, Changed int64
}

// Append appends the encoding of r to b.
func (r Request) Append(b []byte) []byte {
	b = appendString(b, r.Path)
	b = appendString(b, r.Dir)
	for _, list := range [][]string{r.Args, r.Env} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(list)))
		for _, s := range list {
			b = appendString(b, s)
		}
	}
	b = appendString(b, r.Cgroup)
	for _, n := range [...]uint64{
		uint64(r.Processes), uint64(r.Memory),
		r.Pin.Device, r.Pin.Inode, uint64(r.Pin.Size), uint64(r.Pin.Modified), uint64(r.Pin.Changed),
	} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}

// ParseRequest is the inverse of Append. It refuses anything left over, and never
// allocates more than b justifies.
func ParseRequest(b []byte) (Request, error) {
	d := decoder{b: b}
	r := Request{Path: d.string(), Dir: d.string()}
	r.Args = d.list()
	r.Env = d.list()
	r.Cgroup = d.string()
	r.Processes, r.Memory = int(d.number()), int64(d.number())
	r.Pin = Pin{d.number(), d.number(), int64(d.number()), int64(d.number()), int64(d.number())}
	if d.bad || len(d.b) > 0 {
		return Request{}, errMalformed
	}
	return r, nil
}

// decoder reads from b until something does not fit; then bad stays set.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) length() int {
	if d.bad || len(d.b) < 4 {
		d.bad = true
		return 0
	}
	n := binary.LittleEndian.Uint32(d.b)
	d.b = d.b[4:]
	if uint64(n) > uint64(len(d.b)) { // a list of n strings needs 4n bytes, a string n
		d.bad = true
		return 0
	}
	return int(n)
}

func (d *decoder) number() uint64 {
	if d.bad || len(d.b) < 8 {
		d.bad = true
		return 0
	}
	n := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return n
}

func (d *decoder) string() string {
	n := d.length()
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) list() []string {
	n := d.length()
	if n == 0 || d.bad || n > len(d.b)/4 {
		d.bad = d.bad || n > 0
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, d.string())
	}
	return list
}

// ID is the build ID of this supervisor: a hash of its own source and of the Go
// release that compiled it. A supervisor whose ID is another one is not used.
func ID() uint64 {
	h := fnv.New64a()
	for _, s := range Sources() {
		_, _ = h.Write([]byte(s)) // a hash never fails
	}
	_, _ = h.Write([]byte(runtime.Version()))
	return h.Sum64()
}
