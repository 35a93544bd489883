package segment

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

// file writes frames of the payloads; durable says for each how many of the frames
// before it were durable.
func file(durable []int, payloads ...string) (b []byte, at []int64) {
	for i, p := range payloads {
		at = append(at, int64(len(b)))
		b = AppendFrame(b, []byte(p), uint64(i), at[durable[i]])
	}
	return b, append(at, int64(len(b)))
}

func scan(b []byte) (payloads []string, end int64, err error) {
	s := Scan(bytes.NewReader(b), int64(len(b)), 0)
	for {
		f, err := s.Next()
		if errors.Is(err, io.EOF) {
			return payloads, s.Offset(), nil
		}
		if err != nil {
			return payloads, s.Offset(), err
		}
		payloads = append(payloads, string(f.Payload))
	}
}

// spec: LEDGER-2, LEDGER-3
func TestFrames(t *testing.T) {
	t.Parallel()
	want := []string{"a", strings.Repeat("b", 5000), "c", strings.Repeat("d", scanBuffer+1), "e"}
	b, at := file([]int{0, 0, 2, 2, 4}, want...)
	got, end, err := scan(b)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, int64(len(b)), end)
	for i, p := range want {
		payload, err := ReadFrame(bytes.NewReader(b), at[i])
		require.NoError(t, err)
		require.Equal(t, p, string(payload))
		require.Equal(t, at[i+1]-at[i], FrameSize(len(p)))
	}
	_, err = ReadFrame(bytes.NewReader(b), at[1]+1)
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = ReadFrame(bytes.NewReader(b), at[5])
	require.ErrorIs(t, err, io.EOF)
	b[at[2]+frameHead] ^= 1
	_, err = ReadFrame(bytes.NewReader(b), at[2])
	require.ErrorIs(t, err, ErrCorrupt)
}

// Five frames of 600 bytes; the first is durable, the others may be torn.
//
// spec: LEDGER-4, LEDGER-13
func TestTornOrDamaged(t *testing.T) {
	t.Parallel()
	payload := strings.Repeat("x", 600-frameHead-frameTail)
	payloads := []string{payload, payload, payload, payload, payload}
	clear1 := func(from, to int64) func([]byte, []int64) []byte {
		return func(b []byte, _ []int64) []byte { clear(b[from:to]); return b }
	}
	for label, c := range map[string]struct {
		durable []int
		change  func(b []byte, at []int64) []byte
		kept    int // frames; -1: damaged
	}{
		"whole":               {[]int{0, 1, 1, 1, 1}, clear1(0, 0), 5},
		"cut-in-header":       {[]int{0, 1, 1, 1, 1}, func(b []byte, at []int64) []byte { return b[:at[4]+5] }, 4},
		"cut-in-payload":      {[]int{0, 1, 1, 1, 1}, func(b []byte, at []int64) []byte { return b[:at[4]+400] }, 4},
		"cut-in-tail":         {[]int{0, 1, 1, 1, 1}, func(b []byte, _ []int64) []byte { return b[:len(b)-1] }, 4},
		"zero-sector-later":   {[]int{0, 1, 1, 1, 1}, clear1(1024, 1536), 1},
		"zero-last-sector":    {[]int{0, 1, 1, 1, 1}, clear1(2560, 3000), 4},
		"zero-to-the-end":     {[]int{0, 1, 1, 1, 1}, clear1(1200, 3000), 2},
		"zeros-behind":        {[]int{0, 1, 1, 1, 1}, func(b []byte, _ []int64) []byte { return append(b, make([]byte, 700)...) }, 5},
		"few-zeros-behind":    {[]int{0, 1, 1, 1, 1}, func(b []byte, _ []int64) []byte { return append(b, 0, 0, 0) }, 5},
		"zero-but-durable":    {[]int{0, 1, 1, 3, 3}, clear1(1024, 1536), -1},
		"zero-half-a-sector":  {[]int{0, 1, 1, 1, 1}, clear1(1100, 1400), -1},
		"flipped":             {[]int{0, 1, 1, 1, 1}, func(b []byte, at []int64) []byte { b[at[3]+100] ^= 1; return b }, -1},
		"flipped-last":        {[]int{0, 1, 1, 1, 1}, func(b []byte, _ []int64) []byte { b[len(b)-10] ^= 1; return b }, -1},
		"longer-last":         {[]int{0, 1, 1, 1, 1}, func(b []byte, at []int64) []byte { b[at[4]+6] = 9; return b }, -1},
		"garbage-behind":      {[]int{0, 1, 1, 1, 1}, func(b []byte, _ []int64) []byte { return append(b, bytes.Repeat([]byte{7}, 100)...) }, -1},
		"frame-twice":         {[]int{0, 1, 1, 1, 1}, func(b []byte, at []int64) []byte { return append(b, b[at[4]:]...) }, -1},
		"frame-left-out":      {[]int{0, 1, 1, 1, 1}, func(b []byte, at []int64) []byte { return append(b[:at[2]:at[2]], b[at[3]:]...) }, -1},
		"durable-goes-back":   {[]int{0, 1, 2, 1, 1}, clear1(0, 0), -1},
		"durable-of-the-next": {[]int{0, 1, 1, 1, 1}, func(b []byte, at []int64) []byte { return AppendFrame(b, []byte("x"), 5, at[5]+1) }, -1},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			b, at := file(c.durable, payloads...)
			got, end, err := scan(c.change(b, at))
			if c.kept < 0 {
				require.ErrorIs(t, err, ErrCorrupt)
				require.NotErrorIs(t, err, ErrTorn)
				return
			}
			require.Len(t, got, c.kept)
			require.Equal(t, at[c.kept], end)
			if label != "whole" {
				require.ErrorIs(t, err, ErrTorn)
			}
		})
	}
	b, _ := file([]int{0}, payload)
	_, _, err := scan(append(b, make([]byte, maxTorn+1)...))
	require.ErrorIs(t, err, ErrCorrupt, "more than was ever written without a sync")
}

func TestDamageSaysWhere(t *testing.T) {
	t.Parallel()
	b, at := file([]int{0, 0, 0}, "a", "b", "c")
	b[at[1]+frameHead] ^= 1
	_, _, err := scan(b)
	var d *DamageError
	require.ErrorAs(t, err, &d)
	require.Equal(t, DamageError{Offset: at[1], Index: 1, What: "checksum"}, *d)
	require.Equal(t, "ledger is corrupt: record 1 at offset 35: checksum", d.Error())
}

func FuzzScan(f *testing.F) {
	b, _ := file([]int{0, 0, 1}, "a", "bb", "ccc")
	f.Add(b)
	f.Add(b[:len(b)-3])
	f.Add(append(b, make([]byte, 600)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := Scan(bytes.NewReader(b), int64(len(b)), 0)
		var again []byte
		for {
			fr, err := s.Next()
			if err != nil {
				require.True(t, errors.Is(err, io.EOF) || errors.Is(err, ErrTorn) || errors.Is(err, ErrCorrupt))
				break
			}
			again = AppendFrame(again, fr.Payload, fr.Index, int64(binary.LittleEndian.Uint64(b[fr.Offset+16:])))
		}
		require.True(t, bytes.HasPrefix(b, again), "what is accepted is what is written")
	})
}

// spec: LEDGER-8
func TestTreeIsThatOfTheLog(t *testing.T) {
	t.Parallel()
	var hashes []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, err error) {
		for _, i := range indexes {
			out = append(out, hashes[i])
		}
		return out, nil
	})
	var tree Tree
	for n := range int64(200) {
		want, err := tlog.TreeHash(n, reader)
		require.NoError(t, err)
		require.Equal(t, want, tree.Root(), "of %d records", n)
		require.Equal(t, uint64(n), tree.Size())
		record := fmt.Appendf(nil, "record %d", n)
		stored, err := tlog.StoredHashes(n, record, reader)
		require.NoError(t, err)
		hashes = append(hashes, stored...)
		before, clone := tree.Root(), tree.Clone()
		tree.Add(record)
		require.Equal(t, before, clone.Root(), "a clone is independent")
	}
}

// spec: LEDGER-9
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	id := [16]byte{0xab, 1}
	skey, vkey, err := note.GenerateKey(rand.Reader, Origin(id))
	require.NoError(t, err)
	signer, err := note.NewSigner(skey)
	require.NoError(t, err)
	verifier, err := note.NewVerifier(vkey)
	require.NoError(t, err)
	var tree Tree
	for i := range 10 {
		tree.Add([]byte{byte(i)})
	}
	root := tree.Root()
	signed, err := SignCheckpoint(id, &tree, signer)
	require.NoError(t, err)
	text := "lend/ledger/ab010000000000000000000000000000\n10\n" + base64.StdEncoding.EncodeToString(root[:]) + "\n"
	require.True(t, strings.HasPrefix(string(signed), text+"\n— lend/ledger/ab010000000000000000000000000000 "))
	got, err := OpenCheckpoint(signed, verifier)
	require.NoError(t, err)
	require.Equal(t, Checkpoint{ID: id, Size: 10, Root: root}, got)

	for label, bad := range map[string]string{
		"origin":    strings.Replace(text, "lend/ledger/", "example.com/", 1),
		"id-short":  strings.Replace(text, "ab01", "ab", 1),
		"id-upper":  strings.Replace(text, "ab01", "AB01", 1),
		"size-zero": strings.Replace(text, "\n10\n", "\n010\n", 1),
		"size-neg":  strings.Replace(text, "\n10\n", "\n-1\n", 1),
		"root":      strings.Replace(text, "=\n", "\n", 1),
		"more":      text + "extension\n",
		"less":      "lend/ledger/ab010000000000000000000000000000\n10\n",
	} {
		signed, err := note.Sign(&note.Note{Text: bad}, signer)
		require.NoError(t, err)
		_, err = OpenCheckpoint(signed, verifier)
		require.ErrorIs(t, err, errCheckpoint, label)
	}
	_, err = OpenCheckpoint(make([]byte, MaxCheckpoint+1), verifier)
	require.ErrorIs(t, err, errCheckpoint)
	rapid.Check(t, func(rt *rapid.T) {
		at := rapid.IntRange(0, len(signed)-1).Draw(rt, "at")
		bad := bytes.Clone(signed)
		bad[at] ^= rapid.ByteRange(1, 255).Draw(rt, "flip")
		_, err := OpenCheckpoint(bad, verifier)
		require.Error(rt, err)
	})
}
