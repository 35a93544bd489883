package npm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/lendcli/lend/protocol/name"
)

// checkScript refuses what node cannot run: native executables, which some packages
// put in the place of a script, and scripts of another interpreter.
func checkScript(tree fs.FS, script string) error {
	f, err := tree.Open(script)
	if err != nil {
		return errors.New("the file is not there")
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file is empty or unreadable")
	}
	head = head[:n]
	if bytes.IndexByte(head, 0) >= 0 {
		return errors.New("it is a native executable, which cannot be started yet: add it with kind \"native\"")
	}
	if line, _, _ := bytes.Cut(head, []byte("\n")); bytes.HasPrefix(line, []byte("#!")) && !bytes.Contains(line, []byte("node")) {
		return fmt.Errorf("it needs another interpreter than node: %s", name.Quote(strings.TrimSpace(string(line))))
	}
	return nil
}

func binList(bins map[string]string) string {
	if len(bins) == 0 {
		return "none"
	}
	var b strings.Builder
	for i, n := range slices.Sorted(maps.Keys(bins)) {
		if i == 8 {
			b.WriteString(", …")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name.Quote(n))
	}
	return b.String()
}
