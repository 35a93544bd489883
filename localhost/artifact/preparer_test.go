package artifact

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// block is one header of a tar archive and its content, written by hand: the writer of
// the library makes none of what is refused here.
func block(typeflag byte, name string, content []byte) []byte {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[100:], "0000644\x00")
	copy(h[108:], "0000000\x00")
	copy(h[116:], "0000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00", len(content)))
	copy(h[136:], "00000000000\x00")
	copy(h[148:], "        ")
	h[156] = typeflag
	copy(h[257:], "ustar\x0000")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	padding := make([]byte, (512-len(content)%512)%512)
	return append(append(h, content...), padding...)
}

// record is one of a PAX header: its own length comes first.
func record(k, v string) string {
	n := len(k) + len(v) + 3
	for len(fmt.Sprint(n))+len(k)+len(v)+3 != n {
		n = len(fmt.Sprint(n)) + len(k) + len(v) + 3
	}
	return fmt.Sprintf("%d %s=%s\n", n, k, v)
}

func pax(pairs ...string) []byte {
	var b bytes.Buffer
	for i := 0; i < len(pairs); i += 2 {
		b.WriteString(record(pairs[i], pairs[i+1]))
	}
	return block('x', "PaxHeaders/a", b.Bytes())
}

func tarOf(parts ...[]byte) []byte {
	return append(bytes.Join(parts, nil), make([]byte, 1024)...)
}

// TestPreparerSafeExtraction refuses what only an archive that was made by hand holds.
func TestPreparerSafeExtraction(t *testing.T) {
	t.Parallel()
	_, err := importTree(t, save(t, "a.tgz", gzipOf(t, tarOf(block('0', "a", []byte("x"))))), Options{})
	require.NoError(t, err, "the archives are well made")
	hole := []string{"GNU.sparse.numblocks", "1", "GNU.sparse.map", "0,1", "GNU.sparse.size", "900000"}
	for n, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"sparse-0.1":      {tarOf(pax(append(hole, "GNU.sparse.major", "0", "GNU.sparse.minor", "1")...), block('0', "a", []byte("x"))), "sparse"},
		"sparse-0.0":      {tarOf(pax("GNU.sparse.size", "900000", "GNU.sparse.numblocks", "1", "GNU.sparse.offset", "0", "GNU.sparse.numbytes", "1"), block('0', "a", []byte("x"))), "artifact refused"},
		"sparse-1.0":      {tarOf(pax("GNU.sparse.major", "1", "GNU.sparse.minor", "0", "GNU.sparse.realsize", "900000", "GNU.sparse.name", "b"), block('0', "a", append([]byte("1\n0\n1\n"), make([]byte, 507)...))), "sparse"},
		"sparse-old":      {tarOf(block('S', "a", []byte("x"))), "artifact refused"},
		"contiguous":      {tarOf(block('7', "a", []byte("x"))), "not taken"},
		"unknown":         {tarOf(block('Z', "a", []byte("x"))), "not taken"},
		"multi-volume":    {tarOf(block('M', "a", []byte("x"))), "not taken"},
		"pax-traversal":   {tarOf(pax("path", "../a"), block('0', "a", []byte("x"))), "unsafe path"},
		"pax-absolute":    {tarOf(pax("path", "/a"), block('0', "a", []byte("x"))), "unsafe path"},
		"pax-nul":         {tarOf(pax("path", "a\x00b"), block('0', "a", []byte("x"))), "artifact refused"},
		"pax-larger-size": {tarOf(pax("size", "900000"), block('0', "a", []byte("x"))), "artifact refused"},
		"pax-link":        {tarOf(pax("linkpath", "/etc/passwd"), block('2', "a", nil)), "symbolic link"},
		"long-name":       {tarOf(block('L', "././@LongLink", []byte("../../x\x00")), block('0', "a", []byte("x"))), "unsafe path"},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			l := small()
			l.Ratio = 100_000
			refused(t, save(t, "a.tgz", gzipOf(t, c.archive)), c.want, l)
		})
	}
}
