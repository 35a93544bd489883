// Package renewal keeps a caller's lease fresh: a Source is a client.LeaseSource that
// asks whoever issues leases for the next one before the present one expires.
//
//	source, err := renewal.New(renewal.Config{Fetch: askIssuer})
//	…
//	defer source.Close()
//	c, err := client.New(client.Config{Key: key, Leases: source.Lease})
//
// A lease is renewed when somebody needs it and a half to two thirds of its life are
// over, at a moment of its own, so that callers that began together do not come back
// together. Whoever asks then gets the present lease at once; only without one that is
// valid is the next one waited for. There is one request at a time, each is bounded, and
// after a failure the next one waits for longer. A lease that nobody needs is not
// renewed: what was given away can expire.
//
// A lease is what lets its holder run commands. A Source writes none to logs, errors or
// format verbs.
package renewal
