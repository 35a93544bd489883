package revocations

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
)

// full is a store with many entries.
func full(b *testing.B, n int) *Store {
	b.Helper()
	dir := b.TempDir()
	many := make([]revocation.Entry, n)
	for i := range many {
		binary.BigEndian.PutUint32(many[i].Lease[:], uint32(i+1))
		many[i].Issuer, many[i].IssuedBefore = testKey('x').id, testTime
		many[i] = many[i].Kept(testTime)
	}
	if err := os.WriteFile(dir+"/revocations", must(must(revocation.New(many...)).Marshal()), 0o600); err != nil {
		b.Fatal(err)
	}
	return Open(dir+"/revocations", dir+"/lockdown")
}

func BenchmarkRevoked(b *testing.B) {
	s, sub := full(b, 90_000), leaseOf(9)
	for b.Loop() {
		if s.Revoked(sub) {
			b.Fatal("revoked")
		}
	}
}

// A replay costs a signature, whatever the store holds.
func BenchmarkReplay(b *testing.B) {
	s, a := full(b, 80_000), authority()
	envelope := sealed(testKey('i'), revocation.Entry{Lease: lease.ID{9}})
	for b.Loop() {
		if _, _, _, err := s.Accept(a, envelope); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, n := range []int{0, 1000, 90_000} {
		b.Run(map[int]string{0: "empty", 1000: "1000", 90_000: "90000"}[n], func(b *testing.B) {
			s, i := full(b, n), uint64(0)
			for b.Loop() {
				i++
				e := revocation.Entry{Holder: testKey('h').id, IssuedBefore: testTime}
				binary.LittleEndian.PutUint64(e.Lease[8:], i)
				if _, err := s.Add(testTime, e.Kept(testTime)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
