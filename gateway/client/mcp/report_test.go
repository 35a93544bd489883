package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/mcp/kept"
	"github.com/lendcli/lend/protocol"
)

func brief(r Report) string {
	exit := "-"
	if r.ExitCode != nil {
		exit = string(rune('0' + *r.ExitCode))
	}
	return strings.Join([]string{r.Outcome, r.Ran, r.Code, exit, r.Signal}, " ")
}

// Each error of a run has one report, and only the gateway's word makes an exit.
func TestReports(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "exited yes OK 0 "},
		{&client.ExitError{Code: 3}, "exited yes OK 3 "},
		{&client.ExitError{Signal: "SIGKILL"}, "signalled yes OK - SIGKILL"},
		{&client.RefusedError{Code: protocol.CodeLeaseRevoked}, "refused no LEASE_REVOKED - "},
		{&client.RefusedError{Code: protocol.CodeOutcomeUnknown}, "unknown unknown OUTCOME_UNKNOWN - "},
		{&client.EndedError{Code: protocol.CodeTimeout}, "stopped yes TIMEOUT - "},
		{&client.EndedError{Code: protocol.CodeCancelled}, "cancelled yes CANCELLED - "},
		{&client.EndedError{Code: protocol.CodeOutcomeUnknown, Cause: errors.New("lost")}, "unknown unknown OUTCOME_UNKNOWN - "},
		{&client.OutputError{Output: "standard output", Err: io.ErrShortWrite}, "unknown yes OUTPUT_LOST - "},
		{&client.OutputError{Output: "standard output", Err: io.ErrShortWrite, End: &client.EndedError{Code: protocol.CodeOutcomeUnknown, Cause: client.ErrOutcomeUnknown}}, "unknown unknown OUTCOME_UNKNOWN - "},
		{&client.EndedError{Code: protocol.CodeOutcomeUnknown, Cause: fmt.Errorf("%w: %w", client.ErrOutcomeUnknown, &client.RefusedError{Code: protocol.CodeLeaseRevoked})}, "unknown unknown OUTCOME_UNKNOWN - "},
		{&client.EndedError{Code: protocol.CodeOutcomeUnknown, Cause: &client.RefusedError{Code: protocol.CodeBusy}}, "unknown unknown OUTCOME_UNKNOWN - "},
		{fmt.Errorf("%w: %w", &client.RefusedError{Code: protocol.CodeBusy}, client.ErrOutcomeUnknown), "unknown unknown OUTCOME_UNKNOWN - "},
		{client.ErrUnreachable, "not-sent no NOT_SENT - "},
		{context.Canceled, "not-sent no NOT_SENT - "},
	} {
		require.Equal(t, c.want, brief(reportOf(c.err, nil)))
	}
	require.True(t, reportOf(client.ErrUnreachable, nil).Retryable)
	busy := reportOf(&client.RefusedError{Code: protocol.CodeBusy, RetryAfter: time.Second}, nil)
	require.True(t, busy.Retryable)
	require.Equal(t, int64(1000), busy.RetryAfterMS)
	require.NotEmpty(t, busy.Advice)
}

// What a broker says is believed only where it fits together.
func TestReportsOfTheBroker(t *testing.T) {
	t.Parallel()
	const unknown = "unknown unknown OUTCOME_UNKNOWN - "
	for _, c := range []struct {
		detail string
		status int
		ended  bool
		want   string
	}{
		{`{"origin":"command","ran":"yes","code":"OK"}`, 0, true, "exited yes OK 0 "},
		{`{"origin":"command","ran":"yes","code":"OK"}`, 5, true, "exited yes OK 5 "},
		{`{"origin":"command","ran":"yes","code":"OK","signal":"SIGTERM"}`, 143, true, "signalled yes OK - SIGTERM"},
		{`{"origin":"command","ran":"yes","code":"OK"}`, 0, false, unknown},
		{`{"origin":"gateway","ran":"no","code":"DENIED","message":"refused"}`, 126, false, "refused no DENIED - "},
		{`{"origin":"gateway","ran":"yes","code":"TIMEOUT"}`, 124, true, "stopped yes TIMEOUT - "},
		{`{"origin":"gateway","ran":"yes","code":"CANCELLED"}`, 130, true, "cancelled yes CANCELLED - "},
		{`{"origin":"caller","ran":"no","code":"NOT_SENT"}`, 125, false, "not-sent no NOT_SENT - "},
		{`{"origin":"caller","ran":"unknown","code":"OUTCOME_UNKNOWN"}`, 255, false, unknown},
		{`{"origin":"caller","ran":"yes","code":"OUTPUT_LOST","signal":"SIGPIPE"}`, 255, true, "unknown yes OUTPUT_LOST - SIGPIPE"},
		{`{}`, 0, true, unknown},
		{``, 0, true, unknown},
		{`[]`, 0, true, unknown},
	} {
		require.Equal(t, c.want, brief(reportTold([]byte(c.detail), c.status, c.ended)), c.detail)
	}
}

// Every report fits the schema that tools declare.
func TestResultsFitTheirSchema(t *testing.T) {
	t.Parallel()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(outputSchema))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("output.json", doc))
	schema, err := compiler.Compile("output.json")
	require.NoError(t, err)
	for _, e := range []error{
		nil, &client.ExitError{Code: 255}, &client.ExitError{Signal: "SIGKILL"}, &client.RefusedError{Code: protocol.CodeDenied},
		&client.EndedError{Code: protocol.CodeTimeout}, context.Canceled, &client.EndedError{Code: protocol.CodeOutcomeUnknown},
	} {
		out := kept.New(10, &atomic.Uint64{})
		_, _ = out.Write([]byte("\xff0123456789"))
		r := result{Report: reportOf(e, nil), Authority: "owner", Stdout: out.Output(), Stderr: out.Output()}
		data, err := json.Marshal(r)
		require.NoError(t, err)
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(data)))
		require.NoError(t, err)
		require.NoError(t, schema.Validate(v), "%s", data)
		require.NotEmpty(t, r.content(out, out))
	}
}
