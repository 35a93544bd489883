package file

import (
	"testing"

	"github.com/lendcli/lend/protocol/name"
)

func TestNobodyIsNoHolder(t *testing.T) {
	t.Parallel()
	i := Issuer{HoldersAny: true}
	if i.MayName(name.PeerID{}) {
		t.Fatal("an issuer for any holder names somebody")
	}
}
