package artifact

import (
	"archive/tar"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is kept aside is no part of the tree, whatever it comes in.
func TestImportKeepsAside(t *testing.T) {
	t.Parallel()
	bare, err := importTree(t, writeDir(t, file{name: "a", body: "A"}), Options{Limits: small()})
	require.NoError(t, err)
	for n, src := range map[string]string{
		"directory": writeDir(t, file{name: "a", body: "A"}, file{name: "release.sig", body: "sig"}),
		"zip":       save(t, "a.zip", zipOf(t, file{name: "a", body: "A"}, file{name: "release.sig", body: "sig"})),
		"tar":       save(t, "a.tgz", tarGzOf(t, entryOf("a", "A"), entryOf("release.sig", "sig"))),
	} {
		var sig, other []byte
		s, err := importTree(t, src, Options{Limits: small(), Aside: map[string]*[]byte{"release.sig": &sig, "other": &other}})
		require.NoError(t, err, n)
		require.Equal(t, "sig", string(sig), n)
		require.Nil(t, other, n)
		require.Equal(t, bare.Digest(), s.Digest(), n)
		_, _, ok := s.File("release.sig")
		require.False(t, ok, n)
	}
	var sig []byte
	aside := Options{Limits: small(), Aside: map[string]*[]byte{"release.sig": &sig}}
	_, err = importTree(t, writeDir(t, file{name: "sub/release.sig", body: "A"}), aside)
	require.NoError(t, err)
	require.Nil(t, sig, "only exactly that path")
	_, err = importTree(t, writeDir(t, file{name: "release.sig", body: ""}), aside)
	require.NoError(t, err)
	require.NotNil(t, sig, "an empty file is one")
	require.Empty(t, sig)
}

func TestImportRefusesAside(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, src, want string
	}{
		{"twice", save(t, "a.tgz", tarGzOf(t, entryOf("release.sig", "1"), entryOf("release.sig", "2"))), "it is there twice"},
		{"case", save(t, "a.tgz", tarGzOf(t, entryOf("release.sig", "1"), entryOf("RELEASE.SIG", "2"))), "letter case"},
		{"other-case", writeDir(t, file{name: "Release.Sig", body: "1"}), "differs from release.sig only by letter case"},
		{"directory", writeDir(t, file{name: "release.sig/a", body: "1"}), "it is a directory"},
		{"directory-of-tar", save(t, "a.tgz", tarGzOf(t, tar.Header{Name: "./release.sig/", Typeflag: tar.TypeDir, Mode: 0o755})), "it is a directory"},
		{"directory-of-zip", save(t, "a.zip", zipOf(t, file{name: "release.sig/a", body: "1"})), "it is a directory"},
		{"large", writeDir(t, file{name: "release.sig", body: strings.Repeat("x", maxAside+1)}), "larger than"},
		{"link", save(t, "a.tgz", tarGzOf(t, entryOf("a", "A"), tar.Header{Name: "release.sig", Typeflag: tar.TypeSymlink, Linkname: "a"})), "symbolic link"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var sig []byte
			_, err := importTree(t, c.src, Options{Limits: small(), Aside: map[string]*[]byte{"release.sig": &sig}})
			require.ErrorContains(t, err, c.want)
		})
	}
}
