// Package client runs commands on a gateway from Go, in the shape of os/exec.
//
//	c, err := client.New(client.Config{Key: key, Leases: client.Static(file)})
//	…
//	defer c.Close()
//	cmd := c.Command(ctx, "github", "issue.list", "--repo", "a/b")
//	out, err := cmd.Output()
//
// The gateway, the version and what may be run come from the lease. Before
// anything is sent the client looks whether the lease is made out to it and still
// valid, and names what is wrong. A refusal that says "not now" is waited for.
//
// Each operation has an ID. A gateway starts it at most once, so the client may
// ask again under the same ID when a link was lost, and joins what runs with the
// bytes that it already has. It never reports success without the gateway's word
// about the end and every byte that was announced. If neither can be had, the
// error is ErrOutcomeUnknown.
//
// Errors: *ExitError if the command failed by itself, *RefusedError if nothing
// ran, *EndedError if it was stopped or its outcome is unknown, *OutputError and
// *InputError if this side failed to write or to read; all others mean
// that nothing was sent: ErrUnreachable, ErrNotAdmitted, ErrNotGateway, ErrNoAddress,
// ErrVersions, ErrClosed, a *lease.Error, an error of the LeaseSource or of the context.
// ExitStatus maps them as lend run does.
//
// A Client may be used from any goroutine, a Cmd from one. Every goroutine that a
// Cmd starts has ended when Wait returns, except one that reads from a Stdin that
// cannot be interrupted; Client.Close waits for the rest.
package client
