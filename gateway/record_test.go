package gateway

import (
	"bytes"
	"errors"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
)

// recorded are the events of a name, oldest first.
func (w *world) recorded(name string) []ledger.Event {
	w.t.Helper()
	var out []ledger.Event
	require.NoError(w.t, w.ledger.Walk(func(e ledger.Entry) error {
		if e.Event != nil && e.Event.Name == name {
			out = append(out, *e.Event)
		}
		return nil
	}))
	return out
}

func TestRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node.Record(ledger.Event{Name: "lockdown.on", Facts: map[string]string{"why": "a test"}})
	got := w.recorded("lockdown.on")
	require.Len(t, got, 1)
	require.Equal(t, "a test", got[0].Facts["why"])
	require.WithinDuration(t, w.clock.now(), got[0].At, patience)
}

// TestRecordThatIsRefused: whoever reads the log learns of it.
func TestRecordThatIsRefused(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	n := &Node{cfg: Config{Now: (&clock{}).now, Log: zerolog.New(&log), Observer: nobody{}}, ledger: locked{errors.New("lost")}}
	n.Record(ledger.Event{Name: "lockdown.on"})
	require.Contains(t, log.String(), `"level":"error"`)
	require.Contains(t, log.String(), "lockdown.on")
}
