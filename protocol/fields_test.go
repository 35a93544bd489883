package protocol

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	lendv1 "github.com/lendcli/lend/proto/lend/v1"
	"github.com/lendcli/lend/protocol/name"
)

// Each bound of each frame and message by itself: one value beyond it, with the rule
// that it breaks, beside one that is good.

const fieldIssuer = "12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4"

func fieldKey(t *testing.T) OperationKey {
	t.Helper()
	issuer, err := name.ParsePeerID(fieldIssuer)
	require.NoError(t, err)
	invocation, err := name.ParseInvocationID("task-1")
	require.NoError(t, err)
	operation, err := name.ParseOperationID("operation-00000001")
	require.NoError(t, err)
	return OperationKey{Issuer: issuer, Invocation: invocation, Operation: operation}
}

func fieldTarget(t *testing.T) (k name.ConnectorKey, v name.Version, c name.Command) {
	t.Helper()
	require.NoError(t, k.UnmarshalText([]byte("fx")))
	require.NoError(t, v.UnmarshalText([]byte("1")))
	require.NoError(t, c.UnmarshalText([]byte("print")))
	return k, v, c
}

// broken is a change of a good value, and the rule that it breaks.
type broken[T any] struct {
	rule   string
	change func(*T)
}

func eachBroken[T any](t *testing.T, good func() *T, check func(*T) *ViolationError, cases map[string]broken[T]) {
	t.Helper()
	require.Nil(t, check(good()))
	for title, c := range cases {
		m := good()
		c.change(m)
		v := check(m)
		require.NotNil(t, v, title)
		require.Equal(t, c.rule, v.Rule, title)
	}
}

func TestStartFields(t *testing.T) {
	t.Parallel()
	good := func() *Start {
		k, v, c := fieldTarget(t)
		return &Start{Operation: fieldKey(t).Operation, Connector: k, Version: v, Command: c, Lease: [][]byte{{1}}, Arguments: []string{"a"}}
	}
	eachBroken(t, good, func(s *Start) *ViolationError { return check(s) }, map[string]broken[Start]{
		"operation":      {"START-1", func(s *Start) { s.Operation = name.OperationID{} }},
		"connector":      {"START-1", func(s *Start) { s.Connector = name.ConnectorKey{} }},
		"version":        {"START-1", func(s *Start) { s.Version = name.Version{} }},
		"command":        {"START-1", func(s *Start) { s.Command = name.Command{} }},
		"no-lease":       {"START-2", func(s *Start) { s.Lease = nil }},
		"long-chain":     {"START-2", func(s *Start) { s.Lease = [][]byte{{1}, {1}, {1}, {1}} }},
		"empty-lease":    {"START-2", func(s *Start) { s.Lease = [][]byte{{1}, {}} }},
		"long-lease":     {"START-2", func(s *Start) { s.Lease = [][]byte{make([]byte, MaxLease+1)} }},
		"long-argument":  {"START-3", func(s *Start) { s.Arguments = []string{strings.Repeat("a", MaxArgument+1)} }},
		"many-arguments": {"START-3", func(s *Start) { s.Arguments = make([]string, MaxArguments+1) }},
		"long-together": {"START-3", func(s *Start) {
			s.Arguments = []string{strings.Repeat("a", MaxArgument), strings.Repeat("a", MaxArgument), "aaa"}
		}},
	})
}

func TestAttachFields(t *testing.T) {
	t.Parallel()
	good := func() *Attach {
		k := fieldKey(t)
		return &Attach{Issuer: k.Issuer, Invocation: k.Invocation, Operation: k.Operation, Token: make([]byte, TokenSize)}
	}
	eachBroken(t, good, func(a *Attach) *ViolationError { return check(a) }, map[string]broken[Attach]{
		"issuer":     {"ATTACH-1", func(a *Attach) { a.Issuer = name.PeerID{} }},
		"invocation": {"ATTACH-1", func(a *Attach) { a.Invocation = name.InvocationID{} }},
		"operation":  {"ATTACH-1", func(a *Attach) { a.Operation = name.OperationID{} }},
		"token":      {"ATTACH-2", func(a *Attach) { a.Token = make([]byte, TokenSize-1) }},
	})
}

func TestAnswerFields(t *testing.T) {
	t.Parallel()
	const beyond = maxDuration + 1
	accepted := func(a *Accepted) *ViolationError { return check(a) }
	eachBroken(t, func() *Accepted { return &Accepted{Limits: Limits{Run: maxDuration, Detached: maxDuration}} }, accepted, map[string]broken[Accepted]{
		"stdin":        {"ACCEPT-2", func(a *Accepted) { a.Stdin = 1 }},
		"stdout":       {"ACCEPT-2", func(a *Accepted) { a.Stdout = 1 }},
		"stderr":       {"ACCEPT-2", func(a *Accepted) { a.Stderr = 1 }},
		"run":          {"ACCEPT-3", func(a *Accepted) { a.Limits.Run = beyond }},
		"run-negative": {"ACCEPT-3", func(a *Accepted) { a.Limits.Run = -1 }},
		"detached":     {"ACCEPT-3", func(a *Accepted) { a.Limits.Detached = beyond }},
		"token":        {"ATTACH-2", func(a *Accepted) { a.Token = []byte{1} }},
	})
	require.Nil(t, accepted(&Accepted{Attached: true, Stdin: 1, Stdout: 1, Stderr: 1}))
	eachBroken(t, func() *Refused { return &Refused{Code: CodeBusy, Public: "busy"} }, func(r *Refused) *ViolationError { return check(r) }, map[string]broken[Refused]{
		"ok":     {"REFUSE-1", func(r *Refused) { r.Code = CodeOK }},
		"retry":  {"REFUSE-1", func(r *Refused) { r.RetryAfter = beyond }},
		"public": {"REFUSE-2", func(r *Refused) { r.Public = "\n" }},
	})
	eachBroken(t, func() *Exit { return &Exit{Signal: "SIGTERM", Core: true} }, func(e *Exit) *ViolationError { return check(e) }, map[string]broken[Exit]{
		"code":            {"END-1", func(e *Exit) { e.Code = CodeBusy }},
		"negative":        {"END-1", func(e *Exit) { *e = Exit{Status: -1} }},
		"status":          {"END-1", func(e *Exit) { *e = Exit{Status: 256} }},
		"core":            {"END-1", func(e *Exit) { e.Signal = "" }},
		"signal":          {"END-1", func(e *Exit) { e.Signal = "TERM" }},
		"signal-of-one":   {"END-1", func(e *Exit) { e.Signal = "SIG" }},
		"signal-long":     {"END-1", func(e *Exit) { e.Signal = "SIGABCDEFGHIJKLM" }},
		"signal-lower":    {"END-1", func(e *Exit) { e.Signal = "SIGterm" }},
		"signal-and-exit": {"END-1", func(e *Exit) { e.Status = 1 }},
		"duration":        {"END-1", func(e *Exit) { e.Duration = beyond }},
	})
}

func TestDataFields(t *testing.T) {
	t.Parallel()
	good := func() *Data { return &Data{Stream: Stdout, Payload: []byte("x")} }
	eachBroken(t, good, func(d *Data) *ViolationError { return check(d) }, map[string]broken[Data]{
		"stream": {"DATA-2", func(d *Data) { d.Stream = Stderr + 1 }},
		"empty":  {"DATA-2", func(d *Data) { d.Payload = nil }},
		"long":   {"DATA-2", func(d *Data) { d.Payload = make([]byte, MaxData+1) }},
		"offset": {"DATA-2", func(d *Data) { d.Offset = math.MaxUint64 }},
	})
	for body, ok := range map[string]bool{"\x1a\x00": true, "\x1a": false, "\x1a\x80": false, "\x1a\x01": false} {
		_, got := lengthDelimited([]byte(body), body[0])
		require.Equal(t, ok, got, "%q: no length is not the length 0", body)
	}
	for title, body := range map[string][]byte{
		"stream-0":    {tagData, 5, tagStream, 0, tagPayload, 1, 'x'},
		"stream-none": {tagData, 2, tagStream, 0x80},
		"stream-3":    {tagData, 5, tagStream, 3, tagPayload, 1, 'x'},
		"offset-0":    {tagData, 5, tagOffset, 0, tagPayload, 1, 'x'},
		"offset-none": {tagData, 1, tagOffset},
	} {
		require.Equal(t, errDataForm, parseData(body, new(Data)), title)
	}
}

func TestSendersSendTheirOwn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sender Role
		ack    Ack
		ok     bool
	}{
		{Caller, Ack{Stdout: 1, Stderr: 1}, true},
		{Caller, Ack{Stdin: 1}, false},
		{Gateway, Ack{Stdin: 1}, true},
		{Gateway, Ack{Stdout: 1}, false},
		{Gateway, Ack{Stderr: 1}, false},
	} {
		require.Equal(t, c.ok, checkSender(&c.ack, c.sender) == nil, "%v %+v", c.sender, c.ack)
	}
}

func TestRequestFields(t *testing.T) {
	t.Parallel()
	eachBroken(t, func() *StatusRequest { return &StatusRequest{OperationKey: fieldKey(t)} },
		func(q *StatusRequest) *ViolationError { return checkRequest(q) }, map[string]broken[StatusRequest]{
			"issuer":     {"CONTROL-2", func(q *StatusRequest) { q.Issuer = name.PeerID{} }},
			"invocation": {"CONTROL-2", func(q *StatusRequest) { q.Invocation = name.InvocationID{} }},
			"operation":  {"CONTROL-2", func(q *StatusRequest) { q.Operation = name.OperationID{} }},
		})
	send := func(m proto.Message) *bytes.Reader {
		b, err := appendMessage(nil, m, MaxRequest)
		require.NoError(t, err)
		return bytes.NewReader(b)
	}
	refused := func(m *lendv1.ControlRequest) *ViolationError {
		_, err := ReadControlRequest(send(m))
		var v *ViolationError
		require.ErrorAs(t, err, &v)
		return v
	}
	_, noPeer := name.ParsePeerID("nobody")
	require.Equal(t, violation("CONTROL-2", noPeer.Error()), refused(&lendv1.ControlRequest{Request: &lendv1.ControlRequest_Status{
		Status: &lendv1.StatusRequest{Issuer: "nobody", Invocation: "task-1", Operation: "operation-00000001"},
	}}))
	late := &lendv1.CancelRequest{
		Issuer: fieldIssuer, Invocation: "task-1", Operation: "operation-00000001", GraceMs: uint64(maxDuration/time.Millisecond) + 1,
	}
	require.Equal(t, violation("CONTROL-2", "duration out of bounds"), refused(&lendv1.ControlRequest{Request: &lendv1.ControlRequest_Cancel{Cancel: late}}))
	late.GraceMs--
	_, err := ReadControlRequest(send(&lendv1.ControlRequest{Request: &lendv1.ControlRequest_Cancel{Cancel: late}}))
	require.NoError(t, err)

	_, err = ReadControlReply(strings.NewReader(""))
	require.ErrorIs(t, err, io.EOF)
	_, err = ReadControlReply(send(&lendv1.ControlReply{Reply: &lendv1.ControlReply_Refused{Refused: &lendv1.Refused{Code: 1 << 16}}}))
	require.Equal(t, violation("CONTROL-2", "code out of bounds"), err)
}

func TestCatalogueFields(t *testing.T) {
	t.Parallel()
	good := func() *CatalogEntry {
		k, v, c := fieldTarget(t)
		return &CatalogEntry{Connector: k, Version: v, Command: c, Summary: "prints", Effect: "read", InputSchema: []byte("{}")}
	}
	eachBroken(t, good, checkEntry, map[string]broken[CatalogEntry]{
		"connector":    {"CATALOG-3", func(e *CatalogEntry) { e.Connector = name.ConnectorKey{} }},
		"version":      {"CATALOG-3", func(e *CatalogEntry) { e.Version = name.Version{} }},
		"command":      {"CATALOG-3", func(e *CatalogEntry) { e.Command = name.Command{} }},
		"summary":      {"CATALOG-3", func(e *CatalogEntry) { e.Summary = strings.Repeat("a", maxSummary+1) }},
		"summary-utf8": {"CATALOG-3", func(e *CatalogEntry) { e.Summary = "\xff" }},
		"summary-line": {"CATALOG-3", func(e *CatalogEntry) { e.Summary = "a\nb" }},
		"effect":       {"CATALOG-3", func(e *CatalogEntry) { e.Effect = "none" }},
		"schema":       {"CATALOG-3", func(e *CatalogEntry) { e.InputSchema = []byte("{") }},
		"schema-long":  {"CATALOG-3", func(e *CatalogEntry) { e.InputSchema = []byte(`"` + strings.Repeat("a", maxSchema) + `"`) }},
		"limits":       {"ACCEPT-3", func(e *CatalogEntry) { e.Limits.Run = -1 }},
	})
	for kind, change := range map[string]func(*lendv1.CatalogEntry){
		"connector key": func(m *lendv1.CatalogEntry) { m.Connector = "/" },
		"version":       func(m *lendv1.CatalogEntry) { m.Version = "/" },
		"command":       func(m *lendv1.CatalogEntry) { m.Command = "/" },
	} {
		m := entryToProto(good())
		change(m)
		_, err := entryFromProto(m)
		var invalid *name.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, kind, invalid.Kind)
	}
	read := func(m *lendv1.CatalogFrame) error {
		b, err := appendMessage(nil, m, MaxCatalogEntry)
		require.NoError(t, err)
		_, err = ReadCatalog(bytes.NewReader(b))
		return err
	}
	require.Equal(t, violation("CATALOG-2", "a refusal that cannot be"),
		read(&lendv1.CatalogFrame{Frame: &lendv1.CatalogFrame_Refused{Refused: &lendv1.Refused{Code: 1 << 16}}}))
	require.Equal(t, violation("REFUSE-1", "a code that does not refuse"),
		read(&lendv1.CatalogFrame{Frame: &lendv1.CatalogFrame_Refused{Refused: &lendv1.Refused{Code: uint32(CodeOK)}}}))
}

// TestNoFrameIsNone: it is neither sent nor taken for one.
func TestNoFrameIsNone(t *testing.T) {
	t.Parallel()
	require.Equal(t, violation("FRAME-5", "no such frame"), check(nil))
	require.Error(t, NewWriter(io.Discard).WriteFrame(nil))
}
