package broker

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/gateway/client/broker/wire"
)

// maxStatus bounds what a Status lists, in bytes of JSON: it is one answer.
const maxStatus = wire.MaxAnswer / 2

// Status says what a broker keeps. It holds no lease and no handle. As JSON it is less
// than wire.MaxAnswer.
type Status struct {
	Holder   string         `json:"holder"`
	Sessions []SessionShown `json:"sessions"`
	// More counts the leases that are kept and not listed: there are too many to list.
	More int `json:"more,omitempty"`
}

// SessionShown is one session.
type SessionShown struct {
	Invocation string       `json:"invocation"`
	Leases     []LeaseShown `json:"leases"`
}

// LeaseShown is one of its leases.
type LeaseShown struct {
	ID         string    `json:"id"`
	Gateway    string    `json:"gateway"`
	Connectors []string  `json:"connectors"`
	NotAfter   time.Time `json:"notAfter"`
	Connected  bool      `json:"connected"`
}

// Status lists the sessions in the order of their invocations: what they may use, and
// nothing with which to use it.
func (b *Broker) Status() *Status {
	st := &Status{Holder: b.holder.String(), Sessions: []SessionShown{}}
	live := b.live()
	slices.SortFunc(live, func(x, y *session) int {
		return cmp.Or(strings.Compare(x.invocation.String(), y.invocation.String()), strings.Compare(x.scope.issuer.String(), y.scope.issuer.String()))
	})
	size := 0
	for _, s := range live {
		shown, leases := SessionShown{Invocation: s.invocation.String()}, s.all()
		size += sizeShown(shown)
		for _, h := range leases {
			if size > maxStatus {
				break
			}
			l := b.shown(h)
			if size += sizeShown(l); size <= maxStatus {
				shown.Leases = append(shown.Leases, l)
			}
		}
		st.More += len(leases) - len(shown.Leases)
		if size <= maxStatus || len(shown.Leases) > 0 {
			st.Sessions = append(st.Sessions, shown)
		}
	}
	return st
}

func (b *Broker) shown(h *holding) LeaseShown {
	f := h.current()
	l := LeaseShown{ID: f.Lease.ID.String(), Gateway: f.Lease.Gateway.String(), NotAfter: f.Lease.NotAfter, Connected: b.connected(f.Lease.Gateway)}
	for _, g := range f.Lease.Grants {
		l.Connectors = append(l.Connectors, g.Connector.String())
	}
	return l
}

// sizeShown is how many bytes v takes in a list.
func sizeShown(v any) int {
	data, _ := json.Marshal(v) // it holds nothing that could fail
	return len(data) + len(",")
}
