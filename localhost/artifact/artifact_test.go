package artifact

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tempDir is t.TempDir for trees, whose directories are read-only.
func tempDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return
		}
		defer root.Close()
		entries, err := os.ReadDir(dir)
		if err != nil {
			return
		}
		for _, e := range entries {
			if e.IsDir() {
				_ = Remove(root, e.Name())
			}
		}
	})
	return dir
}

func small() Limits {
	return Limits{Entries: 100, FileBytes: 1 << 20, TreeBytes: 2 << 20, ArchiveBytes: 1 << 20, Ratio: 200}
}

type file struct {
	name, body string
	mode       fs.FileMode // 0 is 0644
}

func writeDir(t *testing.T, files ...file) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		p := filepath.Join(dir, filepath.FromSlash(f.name))
		require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
		mode := f.mode
		if mode == 0 {
			mode = 0o644
		}
		require.NoError(t, os.WriteFile(p, []byte(f.body), mode))
	}
	return dir
}

func save(t *testing.T, name string, b []byte) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(p, b, 0o600))
	return p
}

func zipOf(t *testing.T, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate}
		mode := f.mode
		if mode == 0 {
			mode = 0o644
		}
		h.SetMode(mode)
		if strings.HasSuffix(f.name, "/") {
			h.Method = zip.Store
		}
		w, err := z.CreateHeader(h)
		require.NoError(t, err)
		if f.body != "" {
			_, err = w.Write([]byte(f.body))
			require.NoError(t, err)
		}
	}
	require.NoError(t, z.Close())
	return b.Bytes()
}

func tarGzOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	w := tar.NewWriter(g)
	for _, h := range headers {
		body := h.Linkname
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag == tar.TypeReg {
			h.Linkname, h.Size = "", int64(len(body))
		}
		if h.Mode == 0 && h.Typeflag != tar.TypeXGlobalHeader {
			h.Mode = 0o644
		}
		require.NoError(t, w.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			_, err := w.Write([]byte(body))
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	require.NoError(t, g.Close())
	return b.Bytes()
}

// entry makes a tar header whose content travels in Linkname.
func entryOf(name, body string) tar.Header { return tar.Header{Name: name, Linkname: body} }

// importTree imports src and opens what was made.
func importTree(t *testing.T, src string, o Options) (*Snapshot, error) {
	t.Helper()
	if o.Limits == (Limits{}) {
		o.Limits = small()
	}
	dst := filepath.Join(tempDir(t), "tree")
	if err := Import(t.Context(), src, dst, o); err != nil {
		return nil, err
	}
	return Open(dst, o.Limits)
}

func TestTreeDigestVector(t *testing.T) {
	t.Parallel()
	const want = "1c26939f0b0d9f5eeee444d0da526a926149dd19d1f73d4a1b4382cb180ae155"
	dir := writeDir(t, file{"a", "A", 0}, file{"d/x", "hi\n", 0o755})
	archives := map[string]string{
		"directory":      dir,
		"zip":            save(t, "a.bin", zipOf(t, file{"d/x", "hi\n", 0o755}, file{"a", "A", 0})),
		"zip-with-dirs":  save(t, "a.zip", zipOf(t, file{"d/", "", fs.ModeDir | 0o755}, file{"d/x", "hi\n", 0}, file{"a", "A", 0})),
		"tar-gz":         save(t, "a.tgz", tarGzOf(t, entryOf("a", "A"), entryOf("d/x", "hi\n"))),
		"tar-gz-of-dot":  save(t, "b.tgz", tarGzOf(t, tar.Header{Name: "./", Typeflag: tar.TypeDir}, tar.Header{Name: "./d/", Typeflag: tar.TypeDir}, entryOf("./d/x", "hi\n"), entryOf("./a", "A"))),
		"tar-gz-comment": save(t, "c.tgz", tarGzOf(t, tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}, entryOf("a", "A"), entryOf("d/x", "hi\n"))),
	}
	for n, src := range archives {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			s, err := importTree(t, src, Options{})
			require.NoError(t, err)
			require.Equal(t, want, s.Digest())
			require.NoError(t, s.Verify())
		})
	}
}

func TestImportModes(t *testing.T) {
	t.Parallel()
	src := writeDir(t, file{"bin/tool", "x", 0o755}, file{"bin/late", "x", 0o644}, file{"doc/readme", "r", 0o666})
	s, err := importTree(t, src, Options{Inspect: func(tree fs.FS) ([]string, error) {
		b, err := fs.ReadFile(tree, "doc/readme")
		require.NoError(t, err)
		require.Equal(t, "r", string(b))
		return []string{"bin/late"}, nil
	}})
	require.NoError(t, err)
	for p, want := range map[string]fs.FileMode{"bin/tool": 0o500, "bin/late": 0o500, "doc/readme": 0o400, "bin": 0o500 | fs.ModeDir, ".": 0o500 | fs.ModeDir} {
		info, err := os.Lstat(filepath.Join(s.Dir(), p))
		require.NoError(t, err)
		require.Equal(t, want, info.Mode(), p)
	}
	abs, sum, ok := s.File("doc/readme")
	require.True(t, ok)
	require.Equal(t, filepath.Join(s.Dir(), "doc", "readme"), abs)
	require.Equal(t, "454349e422f05297191ead13e21d3db520e5abef52055e4964b82fb213f593a1", sum)
	for _, p := range []string{"bin", "absent", "../x", "."} {
		_, _, ok = s.File(p)
		require.False(t, ok, p)
	}

	_, err = importTree(t, src, Options{Inspect: func(fs.FS) ([]string, error) { return []string{"bin/absent"}, nil }})
	require.ErrorContains(t, err, "there is no such file")
	sentinel := errors.New("no")
	_, err = importTree(t, src, Options{Inspect: func(fs.FS) ([]string, error) { return nil, sentinel }})
	require.ErrorIs(t, err, sentinel)
}

func TestImportSkipsAndStrips(t *testing.T) {
	t.Parallel()
	skip := func(p string) bool { return p == "share" || p == "bin/other" }
	want := []string{".", "bin", "bin/tool", "package.json"}
	src := save(t, "p.tgz", tarGzOf(t, entryOf("package/package.json", "{}"), entryOf("package/share/x/y", "y"),
		entryOf("package/bin/tool", "t"), entryOf("package/bin/other", "o"), entryOf("stray", "s")))
	s, err := importTree(t, src, Options{Strip: 1, Skip: skip})
	require.NoError(t, err)
	require.Equal(t, want, s.paths())
	dir := writeDir(t, file{"package.json", "{}", 0}, file{"share/x/y", "y", 0}, file{"bin/tool", "t", 0}, file{"bin/other", "o", 0})
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "share", "link")))
	s, err = importTree(t, dir, Options{Skip: skip})
	require.NoError(t, err, "what is skipped is not looked at")
	require.Equal(t, want, s.paths())
}

func (s *Snapshot) paths() (out []string) {
	for i := range s.entries {
		out = append(out, s.entries[i].path)
	}
	return out
}

func TestImportFile(t *testing.T) {
	t.Parallel()
	src := writeDir(t, file{"tool", "binary", 0o644})
	require.NoError(t, os.Symlink("tool", filepath.Join(src, "link")))
	dst := filepath.Join(tempDir(t), "tree")
	require.NoError(t, ImportFile(t.Context(), filepath.Join(src, "link"), dst, "bin/tool", Options{Limits: small()}))
	s, err := Open(dst, small())
	require.NoError(t, err)
	info, err := os.Stat(filepath.Join(s.Dir(), "bin", "tool"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o500), info.Mode())
	require.Error(t, ImportFile(t.Context(), src, filepath.Join(tempDir(t), "t"), "bin/tool", Options{Limits: small()}), "a directory")
}

// names that no archive may bring in.
var hostileNames = map[string]string{
	"absolute": "/etc/x", "parent": "../x", "parent-inside": "a/../../x", "backslash": `a\b`, "drive": "C:x", "stream": "a:b", "device": "aux",
	"device-extension": "a/NUL.txt", "control": "a\nb", "bidi": "a\u202eb", "trailing-dot": "a.", "trailing-space": "a ", "dot-segment": "a/./b",
	"double-slash": "a//b", "not-utf-8": "a\xff", "long": strings.Repeat(strings.Repeat("a", 120)+"/", 9) + "a", "deep": strings.Repeat("a/", 33) + "a", "long-segment": strings.Repeat("a", 256),
}

func TestImportRefusesNames(t *testing.T) {
	t.Parallel()
	for n, p := range hostileNames {
		t.Run("zip-"+n, func(t *testing.T) {
			t.Parallel()
			refused(t, save(t, "a.zip", zipOf(t, file{p, "x", 0})), "unsafe path")
		})
		t.Run("tar-"+n, func(t *testing.T) {
			t.Parallel()
			refused(t, save(t, "a.tgz", tarGzOf(t, entryOf(p, "x"))), "unsafe path")
		})
	}
	t.Run("zip-nul", func(t *testing.T) {
		t.Parallel()
		refused(t, save(t, "a.zip", zipOf(t, file{"a\x00b", "x", 0})), "unsafe path")
	})
}

func refused(t *testing.T, src, want string, limits ...Limits) {
	t.Helper()
	o := Options{}
	if len(limits) > 0 {
		o.Limits = limits[0]
	}
	_, err := importTree(t, src, o)
	var r *RefusedError
	require.ErrorAs(t, err, &r)
	require.ErrorContains(t, err, want)
}

func TestImportRefusesCollisions(t *testing.T) {
	t.Parallel()
	nfc, nfd := "caf\u00e9", "cafe\u0301"
	for n, names := range map[string][]string{
		"duplicate":            {"a", "a"},
		"duplicate-dot-slash":  {"a", "./a"},
		"letter-case":          {"README", "readme"},
		"letter-case-of-dirs":  {"A/x", "a/y"},
		"unicode-form":         {nfc, nfd},
		"unicode-form-of-dirs": {nfc + "/a", nfd + "/b"},
		"folding":              {"stra\u00dfe", "STRASSE"},
		"file-then-directory":  {"a", "a/b"},
		"directory-then-file":  {"a/b", "a"},
		"kelvin-sign":          {"k", "\u212a"},
	} {
		var files []file
		var headers []tar.Header
		for _, p := range names {
			files, headers = append(files, file{p, "x", 0}), append(headers, entryOf(p, "x"))
		}
		t.Run("zip-"+n, func(t *testing.T) {
			t.Parallel()
			refused(t, save(t, "a.zip", zipOf(t, files...)), "artifact refused")
		})
		t.Run("tar-"+n, func(t *testing.T) {
			t.Parallel()
			refused(t, save(t, "a.tgz", tarGzOf(t, headers...)), "artifact refused")
		})
	}
	if runtime.GOOS == "linux" {
		refused(t, writeDir(t, file{"README", "x", 0}, file{"readme", "x", 0}), "letter case")
	}
}

func TestImportRefusesKinds(t *testing.T) {
	t.Parallel()
	for n, h := range map[string]tar.Header{
		"symlink":   {Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		"hard-link": {Name: "a", Typeflag: tar.TypeLink, Linkname: "b"},
		"character": {Name: "a", Typeflag: tar.TypeChar},
		"block":     {Name: "a", Typeflag: tar.TypeBlock},
		"fifo":      {Name: "a", Typeflag: tar.TypeFifo},
	} {
		t.Run("tar-"+n, func(t *testing.T) {
			t.Parallel()
			refused(t, save(t, "a.tgz", tarGzOf(t, entryOf("b", "x"), h)), "only files and directories")
		})
	}
	for n, m := range map[string]fs.FileMode{
		"symlink": fs.ModeSymlink | 0o777, "device": fs.ModeDevice | 0o600, "fifo": fs.ModeNamedPipe | 0o600, "socket": fs.ModeSocket | 0o600,
	} {
		t.Run("zip-"+n, func(t *testing.T) {
			t.Parallel()
			refused(t, save(t, "a.zip", zipOf(t, file{"a", "/etc/passwd", m})), "only files and directories")
		})
	}
	t.Run("directory-symlink", func(t *testing.T) {
		t.Parallel()
		dir := writeDir(t, file{"a", "x", 0})
		require.NoError(t, os.Symlink("a", filepath.Join(dir, "b")))
		refused(t, dir, "symbolic link")
	})
	t.Run("directory-name", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS != "linux" {
			t.Skip("such a file cannot be made here")
		}
		refused(t, writeDir(t, file{`a\b`, "x", 0}), "unsafe path")
	})
}

func TestImportRefusesBombs(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("\x00", 900_000)
	t.Run("zip-ratio", func(t *testing.T) {
		t.Parallel()
		refused(t, save(t, "a.zip", zipOf(t, file{"a", zeros, 0})), "times its packed size")
	})
	t.Run("tar-ratio", func(t *testing.T) {
		t.Parallel()
		refused(t, save(t, "a.tgz", tarGzOf(t, entryOf("a", zeros))), "expands too far")
	})
	t.Run("file-size", func(t *testing.T) {
		t.Parallel()
		l := small()
		l.FileBytes, l.Ratio = 1000, 100_000
		refused(t, save(t, "a.zip", zipOf(t, file{"a", zeros, 0})), "larger than 1000 bytes", l)
		refused(t, save(t, "a.tgz", tarGzOf(t, entryOf("a", zeros))), "larger than 1000 bytes", l)
		refused(t, writeDir(t, file{"a", zeros, 0}), "larger than 1000 bytes", l)
	})
	t.Run("tree-size", func(t *testing.T) {
		t.Parallel()
		l := small()
		l.TreeBytes, l.Ratio = 1_000_000, 100_000
		refused(t, save(t, "a.zip", zipOf(t, file{"a", zeros, 0}, file{"b", zeros, 0})), "bytes together", l)
		refused(t, save(t, "a.tgz", tarGzOf(t, entryOf("a", zeros), entryOf("b", zeros))), "bytes together", l)
		refused(t, writeDir(t, file{"a", zeros, 0}, file{"b", zeros, 0}), "bytes together", l)
	})
	t.Run("entries", func(t *testing.T) {
		t.Parallel()
		var files []file
		var headers []tar.Header
		for i := range 60 {
			p := strings.Repeat("d", i+1)
			files, headers = append(files, file{p + "/f", "x", 0}), append(headers, entryOf(p+"/f", "x"))
		}
		refused(t, save(t, "a.zip", zipOf(t, files...)), "more than 100 entries")
		refused(t, save(t, "a.tgz", tarGzOf(t, headers...)), "more than 100 entries")
		refused(t, writeDir(t, files...), "more than 100 entries")
	})
	t.Run("entries-left-out", func(t *testing.T) {
		t.Parallel()
		var headers []tar.Header
		for range 101 {
			headers = append(headers, tar.Header{Name: "./", Typeflag: tar.TypeDir})
		}
		refused(t, save(t, "a.tgz", tarGzOf(t, headers...)), "more than 100 entries")
	})
	t.Run("archive-size", func(t *testing.T) {
		t.Parallel()
		l := small()
		l.ArchiveBytes = 50
		refused(t, save(t, "a.zip", zipOf(t, file{"a", "x", 0})), "the archive is larger", l)
	})
}

func TestImportRefusesDamage(t *testing.T) {
	t.Parallel()
	z := zipOf(t, file{"a", "some text that is packed", 0})
	g := tarGzOf(t, entryOf("a", strings.Repeat("some text", 500)))
	flip := func(b []byte, at int) []byte {
		b = bytes.Clone(b)
		b[at] ^= 0xff
		return b
	}
	local := bytes.Clone(z)
	encrypted := bytes.Clone(z)
	encrypted[bytes.Index(z, []byte("PK\x01\x02"))+8] |= 1
	zip64 := bytes.Clone(z)
	copy(zip64[len(z)-12:], "\xff\xff")
	for n, b := range map[string][]byte{
		"empty":             {},
		"text":              []byte("#!/bin/sh\n"),
		"zip-cut":           z[:len(z)-5],
		"zip-content":       flip(local, 34),
		"zip-trailing":      append(bytes.Clone(z), "x"...),
		"zip-prepended":     append([]byte("PKxx"), z...),
		"zip-encrypted":     encrypted,
		"zip-64":            zip64,
		"tar-cut":           g[:len(g)/2],
		"tar-no-end":        g[:len(g)-8],
		"tar-checksum":      flip(g, len(g)-6),
		"tar-header":        flip(g, 15),
		"gzip-of-something": gzipOf(t, []byte("hello")),
		"tar-trailing":      gzipOf(t, append(gunzip(t, g), make([]byte, maxTrailer+1)...)),
		"tar-data-after":    gzipOf(t, append(gunzip(t, g), "x"...)),
		"tar-data-late":     gzipOf(t, append(append(gunzip(t, g), make([]byte, 70_000)...), 1)),
		"tar-second":        gzipOf(t, append(gunzip(t, g), gunzip(t, tarGzOf(t, entryOf("b", "x")))...)),
		"gzip-member":       append(bytes.Clone(g), tarGzOf(t, entryOf("b", "x"))...),
		"gzip-member-empty": append(bytes.Clone(g), gzipOf(t, nil)...),
		"gzip-zeros-after":  append(bytes.Clone(g), 0, 0, 0, 0),
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			l := small()
			l.Ratio = 100_000
			refused(t, save(t, "a.bin", b), "artifact refused", l)
		})
	}
}

// What real tools write: "tar -c ." has "./" before each name and pads to its record size,
// git archive begins with a comment and the directory itself.
func TestImportTakesWhatToolsWrite(t *testing.T) {
	t.Parallel()
	dot := tarGzOf(t, tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755}, entryOf("./a", "A"),
		tar.Header{Name: "./d/", Typeflag: tar.TypeDir, Mode: 0o755}, entryOf("./d/x", "hi\n"))
	git := tarGzOf(t, tar.Header{Name: "pax_global_header", Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": strings.Repeat("ab", 20)}},
		tar.Header{Name: "repo-1/", Typeflag: tar.TypeDir, Mode: 0o755}, entryOf("repo-1/a", "A"), entryOf("repo-1/d/x", "hi\n"))
	for n, c := range map[string]struct {
		src   string
		strip int
	}{
		"tar":        {save(t, "a.tgz", dot), 0},
		"tar-padded": {save(t, "a.tgz", gzipOf(t, append(gunzip(t, dot), make([]byte, 10_240)...))), 0},
		"zip":        {save(t, "a.zip", zipOf(t, file{"./a", "A", 0}, file{"./d/x", "hi\n", 0})), 0},
		"git":        {save(t, "a.tgz", git), 1},
		"git-dot":    {save(t, "a.tgz", tarGzOf(t, entryOf("./repo-1/a", "A"), entryOf("./repo-1/d/x", "hi\n"))), 1},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			l := small()
			l.Ratio = 100_000
			s, err := importTree(t, c.src, Options{Limits: l, Strip: c.strip})
			require.NoError(t, err)
			require.Equal(t, "1c26939f0b0d9f5eeee444d0da526a926149dd19d1f73d4a1b4382cb180ae155", s.Digest())
		})
	}
	for n, p := range map[string]string{"twice": "././a", "inner": "d/./x", "root": ".//a", "up": "./../a"} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			refused(t, save(t, "a.tgz", tarGzOf(t, entryOf(p, "x"))), "unsafe path")
		})
	}
}

func gzipOf(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	g := gzip.NewWriter(&out)
	_, err := g.Write(b)
	require.NoError(t, err)
	require.NoError(t, g.Close())
	return out.Bytes()
}

func gunzip(t *testing.T, b []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(b))
	require.NoError(t, err)
	var out bytes.Buffer
	_, err = out.ReadFrom(r)
	require.NoError(t, err)
	return out.Bytes()
}

// A zip entry may say another size than it has, in both directions.
func TestImportRefusesFalseSizes(t *testing.T) {
	t.Parallel()
	for n, delta := range map[string]int{"longer": 5, "shorter": -5} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			b := zipOf(t, file{"a", "0123456789abcdef", 0})
			at := bytes.Index(b, []byte("PK\x01\x02")) + 24
			b[at] = byte(int(b[at]) + delta)
			refused(t, save(t, "a.zip", b), "artifact refused")
		})
	}
}

func TestImportStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := tempDir(t)
	err := Import(ctx, writeDir(t, file{"a", "x", 0}), filepath.Join(dir, "tree"), Options{Limits: small()})
	require.ErrorIs(t, err, context.Canceled)
	require.Error(t, Import(t.Context(), "relative", filepath.Join(dir, "x"), Options{Limits: small()}))
	require.Error(t, Import(t.Context(), filepath.Join(dir, "absent"), filepath.Join(dir, "x"), Options{Limits: small()}))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "there"), 0o700))
	require.ErrorIs(t, Import(t.Context(), writeDir(t), filepath.Join(dir, "there"), Options{Limits: small()}), fs.ErrExist)
}

func TestProgress(t *testing.T) {
	t.Parallel()
	var last int64
	_, err := importTree(t, writeDir(t, file{"a", "xyz", 0}, file{"b", "12", 0}), Options{Progress: func(n int64) {
		require.Greater(t, n, last)
		last = n
	}})
	require.NoError(t, err)
	require.EqualValues(t, 5, last)
}

func FuzzImport(f *testing.F) {
	var t testing.T
	f.Add(zipOf(&t, file{"a/b", "text", 0o755}))
	f.Add(tarGzOf(&t, entryOf("a/b", "text")))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := tempDir(t)
		src := save(t, "a.bin", b)
		dst := filepath.Join(dir, "tree")
		if Import(t.Context(), src, dst, Options{Limits: small()}) != nil {
			return
		}
		s, err := Open(dst, small())
		require.NoError(t, err, "what was imported is well formed")
		require.NoError(t, s.Verify())
	})
}
