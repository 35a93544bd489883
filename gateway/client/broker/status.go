package broker

import "time"

// Status says what a broker keeps. It holds no lease and no handle.
type Status struct {
	Holder   string         `json:"holder"`
	Sessions []SessionShown `json:"sessions"`
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

// Status lists the sessions: what they may use, and nothing with which to use it.
func (b *Broker) Status() *Status {
	st := &Status{Holder: b.holder.String(), Sessions: []SessionShown{}}
	for _, s := range b.live() {
		shown := SessionShown{Invocation: s.invocation.String()}
		for _, h := range s.all() {
			f := h.current()
			l := LeaseShown{ID: f.Lease.ID.String(), Gateway: f.Lease.Gateway.String(), NotAfter: f.Lease.NotAfter, Connected: b.connected(f.Lease.Gateway)}
			for _, g := range f.Lease.Grants {
				l.Connectors = append(l.Connectors, g.Connector.String())
			}
			shown.Leases = append(shown.Leases, l)
		}
		st.Sessions = append(st.Sessions, shown)
	}
	return st
}
