package binary

import (
	"encoding/binary"
	"slices"
)

// HeadSize is how many first bytes of a file Read wants, at most.
const HeadSize = 4096

// Header is what the first bytes of an executable say.
type Header struct {
	// Format is "elf", "mach-o" or "pe".
	Format string
	// Archs are processors as Go names them ("amd64"), one unless the file holds the
	// program several times. "" is one that is not known.
	Archs  []string
	system byte // ELF: what it was made for; 0 is any
}

// Read recognises a native executable by its first bytes; ok is false for everything
// else: scripts, libraries' archives, relocatable objects, text.
func Read(head []byte) (h Header, ok bool) {
	switch {
	case len(head) >= 20 && string(head[:4]) == "\x7fELF":
		return readELF(head)
	case len(head) >= 0x40 && string(head[:2]) == "MZ":
		return readPE(head)
	case len(head) >= 16:
		return readMachO(head)
	}
	return Header{}, false
}

// RunsOn tells whether a system of goos and goarch, as in package runtime, can start
// it. Emulators do not count.
func (h Header) RunsOn(goos, goarch string) bool {
	format := "elf"
	switch goos {
	case "darwin", "ios":
		format = "mach-o"
	case "windows":
		format = "pe"
	}
	const gnu = 3
	if h.Format != format || goos == "linux" && h.system != 0 && h.system != gnu {
		return false
	}
	return goarch != "" && slices.Contains(h.Archs, goarch)
}

func readELF(head []byte) (Header, bool) {
	var order binary.ByteOrder = binary.LittleEndian
	const bigEndian, executable, shared = 2, 2, 3
	if head[5] == bigEndian {
		order = binary.BigEndian
	}
	if kind := order.Uint16(head[16:]); kind != executable && kind != shared {
		return Header{}, false
	}
	arch := map[uint16]string{3: "386", 40: "arm", 62: "amd64", 183: "arm64", 243: "riscv64", 258: "loong64"}[order.Uint16(head[18:])]
	return Header{Format: "elf", Archs: []string{arch}, system: head[7]}, true
}

func readPE(head []byte) (Header, bool) {
	at := uint64(binary.LittleEndian.Uint32(head[0x3c:]))
	if at+6 > uint64(len(head)) || string(head[at:at+4]) != "PE\x00\x00" {
		return Header{}, false
	}
	arch := map[uint16]string{0x14c: "386", 0x8664: "amd64", 0xaa64: "arm64"}[binary.LittleEndian.Uint16(head[at+4:])]
	return Header{Format: "pe", Archs: []string{arch}}, true
}

// maxFat keeps Java classes, which begin as Mach-O files for several systems do, from
// being taken for one: where these count their parts, those have a version of 45 or
// more.
const maxFat = 16

func readMachO(head []byte) (Header, bool) {
	const executable, fatEntry = 2, 20
	switch {
	case binary.LittleEndian.Uint32(head) == 0xfeedfacf:
		if binary.LittleEndian.Uint32(head[12:]) != executable {
			return Header{}, false
		}
		return Header{Format: "mach-o", Archs: []string{machArch(binary.LittleEndian.Uint32(head[4:]))}}, true
	case binary.BigEndian.Uint32(head) == 0xcafebabe:
		n := int(min(binary.BigEndian.Uint32(head[4:]), maxFat+1))
		if n == 0 || n > maxFat || len(head) < 8+n*fatEntry {
			return Header{}, false
		}
		h := Header{Format: "mach-o"}
		for i := range n {
			h.Archs = append(h.Archs, machArch(binary.BigEndian.Uint32(head[8+i*fatEntry:])))
		}
		return h, true
	}
	return Header{}, false
}

func machArch(cpu uint32) string {
	return map[uint32]string{0x01000007: "amd64", 0x0100000c: "arm64"}[cpu]
}
