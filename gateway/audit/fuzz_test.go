package audit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
)

// FuzzLedger gives a view and a verification any file as a ledger: they end, with an
// error or without, and what they show is harmless.
func FuzzLedger(f *testing.F) {
	b := newBook(f)
	b.end(b.start("op-0000000000000001", `{"rule":"r","purpose":"\"p\"","arguments":["\u001b[2J"]}`), 3)
	require.NoError(f, b.Refuse(ledger.Refusal{Reason: "DENIED", Detail: "\x1b]0;"}))
	require.NoError(f, b.Event(ledger.Event{Name: "x", Facts: map[string]string{"\u202e": "\x07"}}))
	point := must(b.Checkpoint())
	require.NoError(f, b.Close())
	whole := []byte(readFile(f, filepath.Join(b.dir, "00000000000000000000.log")))
	f.Add(whole, point)
	f.Add(whole[:len(whole)-3], point)
	f.Add([]byte("LREC"), []byte("x"))
	dir := filepath.Join(f.TempDir(), "ledger")
	require.NoError(f, os.Mkdir(dir, 0o700))
	log := filepath.Join(dir, "00000000000000000000.log")
	f.Fuzz(func(t *testing.T, file, signed []byte) {
		require.NoError(t, os.WriteFile(log, file, 0o600))
		show := func(r *Record) error {
			text, err := json.Marshal(r)
			require.NoError(t, err)
			require.True(t, ascii(string(text)+r.Summary()), "%s", text)
			return nil
		}
		_ = New(Config{Dir: dir}).Rest(show)
		records, _, err := New(Config{Dir: dir}).Newest(3)
		for i := range records {
			require.NoError(t, err)
			require.NoError(t, show(&records[i]))
		}
		v, err := Verify(dir, []Kept{{Name: "kept", Note: signed}})
		if err != nil { // of what was kept, whatever the ledger is
			require.ErrorContains(t, err, "read what was kept: kept: ")
			require.True(t, ascii(err.Error()))
			return
		}
		require.Equal(t, v.OK, v.Problem == "")
		require.True(t, ascii(v.Problem+v.Key))
		if v.OK {
			require.GreaterOrEqual(t, v.Records, v.KeptElsewhere)
		}
	})
}
