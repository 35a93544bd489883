package protocol

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/name"
)

// spec: CONTROL-1
func TestOnlyOneRequestIsRead(t *testing.T) {
	var b bytes.Buffer
	want := &CancelRequest{OperationKey: testKey(), Lease: [][]byte{[]byte("l")}, Grace: 2 * time.Second}
	require.NoError(t, WriteControlRequest(&b, want))
	b.WriteString("more")
	got, err := ReadControlRequest(&b)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, "more", b.String())
}

// spec: CONTROL-3
func TestCancelIsBounded(t *testing.T) {
	require.Error(t, WriteControlRequest(io.Discard, &CancelRequest{OperationKey: testKey(), Grace: -1}))
	require.Error(t, WriteControlRequest(io.Discard, &CancelRequest{}))
	four := [][]byte{{1}, {1}, {1}, {1}}
	require.Error(t, WriteControlRequest(io.Discard, &CancelRequest{OperationKey: testKey(), Lease: four}))
}

func TestRepliesComeBack(t *testing.T) {
	for _, want := range []ControlReply{
		&CancelReply{State: OperationNotStarted},
		&StatusReply{State: OperationEnded, Exit: &Exit{Code: CodeCancelled, Signal: "SIGKILL"}},
		&StatusReply{State: OperationOutcomeUnknown},
		&RevokeReply{},
		&Refused{Code: CodeDenied, Public: "not permitted"},
	} {
		var b bytes.Buffer
		require.NoError(t, WriteControlReply(&b, want))
		got, err := ReadControlReply(iotest.OneByteReader(&b))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestOperationStateNames(t *testing.T) {
	for s, want := range map[OperationState]string{
		OperationNotStarted: "not started", OperationRunning: "running", OperationEnded: "ended",
		OperationOutcomeUnknown: "outcome unknown", 9: "OperationState(9)",
	} {
		require.Equal(t, want, s.String())
	}
}

func entryOf(command string) CatalogEntry {
	return CatalogEntry{
		Connector: must(name.ParseConnectorKey("github")), Version: must(name.ParseVersion("1")),
		Command: must(name.ParseCommand(command)), Summary: "Größe", Effect: "read",
		InputSchema: json.RawMessage(`{"type":"object"}`), Limits: Limits{Stdout: NoLimit},
	}
}

func TestCatalogComesBack(t *testing.T) {
	for _, n := range []int{0, 1, 3, MaxCatalogEntries} {
		var want []CatalogEntry
		for range n {
			want = append(want, entryOf("issue.list"))
		}
		var b bytes.Buffer
		require.NoError(t, WriteCatalog(&b, want))
		got, err := ReadCatalog(&b)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestCatalogWithoutItsEndIsNone(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteCatalog(&b, []CatalogEntry{entryOf("a"), entryOf("b")}))
	whole := b.Bytes()
	for cut := range whole {
		_, err := ReadCatalog(bytes.NewReader(whole[:cut]))
		require.Equal(t, io.ErrUnexpectedEOF, err)
	}
	one := written1(t, entryOf("a"))
	many := bytes.Repeat(one, MaxCatalogEntries+1)
	_, err := ReadCatalog(bytes.NewReader(many))
	require.ErrorContains(t, err, "CATALOG-2")
}

func written1(t *testing.T, e CatalogEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, WriteCatalog(&b, []CatalogEntry{e}))
	return b.Bytes()[:b.Len()-len(fr(bs(2, vi(1, 1))))]
}

func TestCatalogRefused(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteCatalogRefused(&b, (&Refusal{Code: CodeBusy, RetryAfter: time.Second}).Frame()))
	_, err := ReadCatalog(&b)
	var r *Refusal
	require.ErrorAs(t, err, &r)
	require.Equal(t, CodeBusy, r.Code)
	require.Equal(t, time.Second, r.RetryAfter)
	require.True(t, r.Retryable())
}

func TestCatalogTextIsBounded(t *testing.T) {
	long := entryOf("a")
	long.Summary = strings.Repeat("x", maxSummary+1)
	require.Error(t, WriteCatalog(io.Discard, []CatalogEntry{long}))
	deep := entryOf("a")
	deep.InputSchema = json.RawMessage(`"` + strings.Repeat("x", maxSchema) + `"`)
	require.Error(t, WriteCatalog(io.Discard, []CatalogEntry{deep}))
}
