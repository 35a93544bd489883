package early

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/protocol/name"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func key(holder, operation int) ledger.Key {
	return ledger.Key{
		Issuer: must(name.PeerIDFromKey(bytes.Repeat([]byte{1}, 32))), Invocation: must(name.ParseInvocationID("task-1")),
		Holder:    must(name.PeerIDFromKey(append([]byte{byte(holder), byte(holder >> 8)}, make([]byte, 30)...))),
		Operation: must(name.ParseOperationID(fmt.Sprintf("operation-%06d", operation))),
	}
}

func TestTheyOutliveTheGateway(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "cancels.json"), time.Now()
	c, err := Open(path)
	require.NoError(t, err)
	require.NoError(t, c.Add(key(1, 1), now.Add(time.Minute), now))
	require.NoError(t, c.Add(key(1, 2), now.Add(time.Hour), now))
	require.NoError(t, c.Add(key(1, 2), now.Add(time.Hour), now), "again")
	again, err := Open(path)
	require.NoError(t, err)
	require.True(t, again.Has(key(1, 1)))
	require.True(t, again.Has(key(1, 2)))
	require.False(t, again.Has(key(2, 1)))
	require.NoError(t, again.Add(key(1, 3), now.Add(time.Hour), now.Add(time.Minute)), "what has expired makes room")
	again, err = Open(path)
	require.NoError(t, err)
	require.Equal(t, 2, again.Len())
	require.False(t, again.Has(key(1, 1)))
}

func TestTheyAreBounded(t *testing.T) {
	c, now := Memory(), time.Now()
	for i := range MaxPerHolder {
		require.NoError(t, c.Add(key(0, i), now.Add(time.Minute), now))
	}
	require.ErrorIs(t, c.Add(key(0, MaxPerHolder), now.Add(time.Minute), now), ErrFull)
	for i := 1; c.Add(key(i, 1), now.Add(time.Minute), now) == nil; i++ {
	}
	require.Equal(t, Max, c.Len())
	now = now.Add(time.Hour)
	require.NoError(t, c.Add(key(0, MaxPerHolder), now.Add(time.Minute), now))
	require.Equal(t, 1, c.Len())
}

// A cancel that cannot be written is no promise, though it holds while the gateway runs.
func TestAFileThatCannotBeWritten(t *testing.T) {
	dir, now := filepath.Join(t.TempDir(), "state"), time.Now()
	require.NoError(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "cancels.json")
	c, err := Open(path)
	require.NoError(t, err)
	require.NoError(t, os.Remove(dir))
	require.ErrorIs(t, c.Add(key(1, 1), now.Add(time.Minute), now), os.ErrNotExist)
	require.True(t, c.Has(key(1, 1)))
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, c.Add(key(1, 1), now.Add(time.Minute), now), "the next time it is")
	again, err := Open(path)
	require.NoError(t, err)
	require.True(t, again.Has(key(1, 1)))
}

// What cannot be read keeps the gateway from starting.
func TestAFileThatCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cancels.json")
	for _, text := range []string{
		"", "{", "[]", "{}", `{"schemaVersion":2,"cancels":[]}`, `{"schemaVersion":1,"cancels":[]} {}`,
		`{"schemaVersion":1,"cancels":[],"more":1}`, `{"schemaVersion":1,"cancels":[{"issuer":"x"}]}`,
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Open(path)
		require.ErrorContains(t, err, "read early cancels", text)
	}
	require.NoError(t, os.WriteFile(path, []byte(`{"schemaVersion":1,"cancels":[]}`), 0o600))
	_, err := Open(path)
	require.NoError(t, err)
}

func TestManyAtOnce(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "cancels.json"), time.Now()
	c, err := Open(path)
	require.NoError(t, err)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if err := c.Add(key(i, 1), now.Add(time.Minute), now); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	again, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, 40, again.Len())
}
