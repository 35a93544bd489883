package binary

import (
	"encoding/binary"
	"io"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func elf(kind, machine uint16, system byte, order binary.ByteOrder) []byte {
	b := make([]byte, 64)
	copy(b, "\x7fELF\x02\x01\x01")
	if order == binary.BigEndian {
		b[5] = 2
	}
	b[7] = system
	order.PutUint16(b[16:], kind)
	order.PutUint16(b[18:], machine)
	return b
}

func pe(at uint32, machine uint16) []byte {
	b := make([]byte, 256)
	copy(b, "MZ")
	binary.LittleEndian.PutUint32(b[0x3c:], at)
	if int(at)+6 <= len(b) {
		copy(b[at:], "PE\x00\x00")
		binary.LittleEndian.PutUint16(b[at+4:], machine)
	}
	return b
}

func macho(cpu, kind uint32) []byte {
	b := make([]byte, 32)
	binary.LittleEndian.PutUint32(b, 0xfeedfacf)
	binary.LittleEndian.PutUint32(b[4:], cpu)
	binary.LittleEndian.PutUint32(b[12:], kind)
	return b
}

func fat(cpus ...uint32) []byte {
	b := make([]byte, 8+20*len(cpus)+8)
	binary.BigEndian.PutUint32(b, 0xcafebabe)
	binary.BigEndian.PutUint32(b[4:], uint32(len(cpus)))
	for i, c := range cpus {
		binary.BigEndian.PutUint32(b[8+20*i:], c)
	}
	return b
}

func TestRead(t *testing.T) {
	t.Parallel()
	type on struct{ os, arch string }
	for n, c := range map[string]struct {
		head   []byte
		format string
		runs   []on
		not    []on
	}{
		"linux":        {elf(2, 62, 0, binary.LittleEndian), "elf", []on{{"linux", "amd64"}, {"freebsd", "amd64"}}, []on{{"linux", "arm64"}, {"darwin", "amd64"}, {"windows", "amd64"}, {"linux", ""}}},
		"gnu, pie":     {elf(3, 183, 3, binary.LittleEndian), "elf", []on{{"linux", "arm64"}}, []on{{"linux", "amd64"}}},
		"freebsd":      {elf(2, 62, 9, binary.LittleEndian), "elf", []on{{"freebsd", "amd64"}}, []on{{"linux", "amd64"}}},
		"big endian":   {elf(2, 22, 0, binary.BigEndian), "elf", nil, []on{{"linux", "s390x"}, {"linux", ""}}},
		"windows":      {pe(0x80, 0x8664), "pe", []on{{"windows", "amd64"}}, []on{{"linux", "amd64"}, {"windows", "arm64"}}},
		"darwin":       {macho(0x0100000c, 2), "mach-o", []on{{"darwin", "arm64"}}, []on{{"darwin", "amd64"}, {"linux", "arm64"}}},
		"darwin, both": {fat(0x01000007, 0x0100000c), "mach-o", []on{{"darwin", "arm64"}, {"darwin", "amd64"}}, []on{{"linux", "arm64"}}},
	} {
		h, ok := Read(c.head)
		require.True(t, ok, n)
		require.Equal(t, c.format, h.Format, n)
		for _, s := range c.runs {
			require.True(t, h.RunsOn(s.os, s.arch), "%s on %v", n, s)
		}
		for _, s := range c.not {
			require.False(t, h.RunsOn(s.os, s.arch), "%s on %v", n, s)
		}
	}
}

func TestReadNothing(t *testing.T) {
	t.Parallel()
	for n, head := range map[string][]byte{
		"empty": nil, "script": []byte("#!/usr/bin/env node\nconsole.log('a long enough script')\n"), "short": []byte("\x7fELF\x02\x01\x01 a"),
		"object":      elf(1, 62, 0, binary.LittleEndian),
		"core":        elf(4, 62, 0, binary.LittleEndian),
		"dos":         pe(0, 0)[:0x40],
		"pe far away": pe(0xfffffffe, 0x8664), "library": macho(0x0100000c, 6),
		"java class": append([]byte{0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 65}, make([]byte, 4096)...),
		"cut fat":    fat(0x01000007)[:20], "no parts": fat(),
	} {
		_, ok := Read(head)
		require.False(t, ok, n)
	}
}

func TestReadThisProgram(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	f, err := os.Open(self)
	require.NoError(t, err)
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, HeadSize))
	require.NoError(t, err)
	h, ok := Read(head)
	require.True(t, ok)
	require.True(t, h.RunsOn(runtime.GOOS, runtime.GOARCH))
}

func FuzzRead(f *testing.F) {
	for _, b := range [][]byte{elf(2, 62, 0, binary.LittleEndian), pe(0x80, 0x8664), macho(0x0100000c, 2), fat(0x01000007, 0x0100000c)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, head []byte) {
		h, ok := Read(head)
		require.Equal(t, ok, len(h.Archs) > 0 && h.Format != "")
	})
}
