//go:build linux

package timens

import "github.com/lendcli/lend/lease"

// readdress returns a lease with the addresses of another.
func readdress(old, fresh []byte) ([]byte, error) {
	rule := lease.AddressRule{AllowLocal: true}
	f, err := lease.ParseArmor(old, rule)
	if err != nil {
		return nil, err
	}
	g, err := lease.ParseArmor(fresh, rule)
	if err != nil {
		return nil, err
	}
	return lease.Armor(f.Chain, g.Addresses, rule)
}
