package skill

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lendcli/lend/protocol/name"
)

// Bounds of the skills of one Connector; sizes in bytes. MaxTotal is that of all
// names, titles and descriptions together, and MaxEntries counts files and
// directories of the tree.
const (
	MaxSkills      = 128
	MaxName        = 128
	MaxTitle       = 256
	MaxDescription = 4 << 10
	MaxTotal       = 512 << 10
	MaxFile        = 512 << 10
	MaxDepth       = 8
	MaxEntries     = 10_000
)

// Directory is where an artifact has its skills, FileName what each one is in.
const (
	Directory = "skills"
	FileName  = "SKILL.md"
)

// RefusedError says which rule the tree breaks. Path is of the artifact, with slashes;
// both are safe to show.
type RefusedError struct{ Path, Reason string }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("skill %s: %s", name.Quote(e.Path), e.Reason)
}

// ErrChanged says that a file is not the one that was verified.
var ErrChanged = errors.New("skill is not what was verified")

// Skill is one page. It is a value; Name, Title and Description are valid UTF-8 on one
// line or, Description, several, and foreign text all the same.
type Skill struct {
	Name        string
	Title       string
	Description string
	Path        string // of its SKILL.md in the artifact
	text        string
}

// Text is the whole file, header included, at most MaxFile bytes of UTF-8.
func (s Skill) Text() string { return s.text }

// Verified tells the SHA-256, in lower-case hexadecimal digits, of a file of the
// artifact as it was when the artifact's digest was last compared; false if it has
// no such file. See artifact.Snapshot.File.
type Verified func(p string) (sum string, ok bool)

// Check reads the skills of an artifact that is being imported, and returns the first
// rule that they break, a *RefusedError, or an error of tree. No skills are good.
func Check(tree fs.FS) error {
	_, err := read(tree, nil)
	return err
}

// Read returns the skills of the artifact in tree, sorted by name. Each file is
// compared with what was verified, as it is read: ErrChanged. The result does not
// depend on the tree any more.
func Read(tree fs.FS, verified Verified) ([]Skill, error) {
	if verified == nil {
		return nil, fmt.Errorf("read skills: %w", ErrChanged)
	}
	out, err := read(tree, verified)
	if err != nil {
		return nil, fmt.Errorf("read skills: %w", err)
	}
	return out, nil
}

func read(tree fs.FS, verified Verified) ([]Skill, error) {
	files, err := find(tree)
	if err != nil {
		return nil, err
	}
	var out []Skill
	total := 0
	for _, p := range files {
		text, err := content(tree, p, verified)
		if err != nil {
			return nil, err
		}
		s, err := parse(p, text)
		if err != nil {
			return nil, err
		}
		if total += len(s.Name) + len(s.Title) + len(s.Description); total > MaxTotal {
			return nil, &RefusedError{p, fmt.Sprintf("all names, titles and descriptions are more than %d bytes", MaxTotal)}
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Skill) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(out); i++ {
		if out[i].Name == out[i-1].Name {
			return nil, &RefusedError{out[i].Path, "another skill has the same name: " + name.Quote(out[i].Name)}
		}
	}
	return out, nil
}

// find lists the files of skills, and looks at every entry of the tree.
func find(tree fs.FS) (files []string, err error) {
	root, err := fs.Lstat(tree, Directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !root.IsDir() {
		return nil, &RefusedError{Directory, "it is not a directory"}
	}
	entries := 0
	err = fs.WalkDir(tree, Directory, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entries++; entries > MaxEntries {
			return &RefusedError{p, fmt.Sprintf("there are more than %d files", MaxEntries)}
		}
		if depth := strings.Count(p, "/"); depth > MaxDepth {
			return &RefusedError{p, fmt.Sprintf("it lies more than %d levels below %s", MaxDepth, Directory)}
		}
		if !d.IsDir() && !d.Type().IsRegular() {
			return &RefusedError{p, "it is neither a file nor a directory"}
		}
		if path.Base(p) != FileName {
			return nil
		}
		if d.IsDir() {
			return &RefusedError{p, "it is not a regular file"}
		}
		if len(files) == MaxSkills {
			return &RefusedError{p, fmt.Sprintf("there are more than %d skills", MaxSkills)}
		}
		files = append(files, p)
		return nil
	})
	return files, err
}

// content reads one file, and compares the very bytes that it returns.
func content(tree fs.FS, p string, verified Verified) (_ []byte, err error) {
	f, err := tree.Open(p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &RefusedError{p, "it is not a regular file"}
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxFile {
		return nil, &RefusedError{p, fmt.Sprintf("it is larger than %d bytes", MaxFile)}
	}
	if verified != nil {
		sum := sha256.Sum256(text)
		if want, ok := verified(p); !ok || want != hex.EncodeToString(sum[:]) {
			return nil, fmt.Errorf("%s: %w", name.Quote(p), ErrChanged)
		}
	}
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return nil, &RefusedError{p, "it is not text in UTF-8"}
	}
	return text, nil
}
