package broker

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/multiformats/go-multiaddr"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/broker/native"
	"github.com/lendcli/lend/gateway/client/broker/wire"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Streams are a caller's standard streams. Stdin can be interrupted.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// RunOptions is what lend run says beside the arguments.
type RunOptions struct {
	Connector   string        `json:"connector"`
	Command     string        `json:"command"`
	Version     string        `json:"version,omitempty"`
	Gateway     string        `json:"gateway,omitempty"` // "": the one that lends it
	OperationID string        `json:"operationId,omitempty"`
	Addresses   []string      `json:"addresses,omitempty"`
	Wait        time.Duration `json:"wait,omitempty"`
	// Stdin is "yes", "no" or "auto".
	Stdin string `json:"stdin"`
	// Progress asks for how many bytes pass to be shown on a terminal.
	Progress bool `json:"progress,omitempty"`
}

// Call is one invocation of a shim or of lend run.
type Call struct {
	broker  *Broker
	said    wire.Call
	run     bool // of lend run
	local   bool // it ran here; owned by Do
	streams Streams
	cmd     atomic.Pointer[client.Cmd]
}

// Call prepares a call; run says that it is lend run's. The streams are the caller's.
func (b *Broker) Call(said wire.Call, run bool, streams Streams) *Call {
	return &Call{broker: b, said: said, run: run, streams: streams}
}

// Hurry shortens the grace of what runs; the cancel itself is that of Do's context. It
// may be called from any goroutine.
func (c *Call) Hurry() {
	if cmd := c.cmd.Load(); cmd != nil {
		ctx, cancel := context.WithTimeout(c.broker.ctx, lookEvery)
		defer cancel()
		_, _ = cmd.Cancel(ctx, time.Millisecond) // the first cancel is on its way
	}
}

// Do runs the call to its end, once. When ctx is done, or the Broker is closed, the
// command is cancelled, and its end is awaited.
func (c *Call) Do(ctx context.Context) wire.Exit {
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.broker.ctx, func() { cancel(ErrClosed) })
	defer stop()
	cmd, err := c.dispatch(ctx)
	e := c.broker.config.Report(cmd, err, time.Since(began))
	e.Ended = cmd != nil && cmd.Exit() != nil || c.local && err == nil // a status of 0 needs it: wire.Exit.Returns
	return e
}

func (c *Call) dispatch(ctx context.Context) (*client.Cmd, error) {
	if c.run {
		return c.named(ctx)
	}
	s, done, err := c.enter(&ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if c.said.HasAuthority && c.said.Authority != authorityOwner && c.said.Authority != authorityCaller {
		return nil, fmt.Errorf("choose authority: LEND_AUTHORITY is %s: want owner or caller, or none", name.Quote(c.said.Authority))
	}
	key, err := c.broker.config.Shims(c.said.Name)
	if err != nil {
		return nil, fmt.Errorf("find shim %s: %w", name.Quote(c.said.Name), err)
	}
	if c.said.Authority == authorityCaller {
		return nil, c.own(ctx, key)
	}
	return c.native(ctx, s, key)
}

// enter lets the call into its session, whose end cancels it.
func (c *Call) enter(ctx *context.Context) (*session, func(), error) {
	s, err := c.broker.session(c.said.Session)
	if err != nil {
		return nil, nil, err
	}
	done, err := s.begin()
	if err != nil {
		return nil, nil, err
	}
	within, cancel := context.WithCancelCause(*ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	*ctx = within
	return s, func() {
		stop()
		cancel(nil)
		done()
	}, nil
}

// native runs a command line of the CLI under a lease of the session.
func (c *Call) native(ctx context.Context, s *session, key name.ConnectorKey) (*client.Cmd, error) {
	var what lent
	var args []string
	var all []lent
	for again := false; ; again = true {
		var err error
		all, err = s.lentOf(ctx, key, again)
		if err == nil {
			what, args, err = choose(all, key, c.said.Args)
		}
		var not *native.NotOneError
		switch {
		case err == nil:
		case errors.As(err, &not) && !again:
			continue
		default:
			var held *heldError
			if errors.As(err, &held) {
				c.broker.learn(s, held.holding, err)
			}
			c.help(all, err)
			return nil, err
		}
		break
	}
	stdin := c.streams.Stdin
	if !what.Entry.Stdin {
		stdin = nil
	}
	cmd, err := c.under(ctx, what.holding, func(cl *client.Client) *client.Cmd {
		cmd := cl.Command(ctx, key.String(), what.Entry.Command.String(), args...)
		cmd.Version, cmd.Stdin = what.Entry.Version.String(), stdin
		return cmd
	})
	c.broker.learn(s, what.holding, err)
	c.help([]lent{what}, err)
	return cmd, err
}

// own runs a command line of the caller's own Connector.
func (c *Call) own(ctx context.Context, key name.ConnectorKey) error {
	if c.broker.config.Local == nil {
		return &client.RefusedError{Code: protocol.CodeConnectorUnknown}
	}
	entries, err := c.broker.config.Local.Catalog(ctx, key)
	if err != nil {
		return err
	}
	var all []lent
	for _, e := range entries {
		if e.Connector == key {
			all = append(all, lentBy(nil, e))
		}
	}
	if len(all) == 0 {
		return &client.RefusedError{Code: protocol.CodeConnectorUnknown}
	}
	what, args, err := choose(all, key, c.said.Args)
	if err != nil {
		c.help(all, err)
		return err
	}
	streams := c.streams
	if !what.Entry.Stdin {
		streams.Stdin = nil
	}
	c.local = true
	err = c.broker.config.Local.Run(ctx, what.Entry, args, streams)
	c.help([]lent{what}, err)
	return err
}

// help tells who asks for it what is lent, on their error output.
func (c *Call) help(all []lent, err error) {
	if c.broker.config.Help == nil {
		return
	}
	if lines := native.Help(linesOf(all), c.said.Args, err); len(lines) > 0 {
		c.broker.config.Help(c.streams.Stderr, c.said.Name, lines)
	}
}

// under runs one command with the client of a lease.
func (c *Call) under(ctx context.Context, h *holding, command func(*client.Client) *client.Cmd) (*client.Cmd, error) {
	done, err := h.use()
	if err != nil {
		return nil, err
	}
	defer done()
	defer h.turn(ctx, max(0, c.broker.config.Wait))()
	cmd := command(h.client)
	cmd.Stdout, cmd.Stderr = c.streams.Stdout, c.streams.Stderr
	if err := cmd.Start(); err != nil {
		return cmd, err
	}
	c.cmd.Store(cmd)
	return cmd, cmd.Wait()
}

// learn draws the conclusions of how a call ended.
func (b *Broker) learn(s *session, h *holding, err error) {
	var refused *client.RefusedError
	if !errors.As(err, &refused) {
		return
	}
	switch refused.Code {
	case protocol.CodeLeaseExpired, protocol.CodeLeaseRevoked, protocol.CodeLeaseExhausted, protocol.CodeInvocationClosed:
		if h.renews {
			return // the next one may be better
		}
		b.config.Log.Debug().Str("code", refused.Code.String()).Msg("lease dropped")
		b.gone(s, h)
	case protocol.CodeCommandUnknown, protocol.CodeVersionUnknown, protocol.CodeConnectorUnknown:
		h.forgetCatalog()
	default:
	}
}

// looseKey is of a lease that came with its call.
type looseKey [sha256.Size]byte

// named runs what lend run says, under a lease that it brought or one of its session.
func (c *Call) named(ctx context.Context) (*client.Cmd, error) {
	var o RunOptions
	if err := json.Unmarshal(c.said.Options, &o); err != nil || o.Wait == 0 {
		return nil, errors.New("read options: not those of this version")
	}
	var h *holding
	if len(c.said.Lease) > 0 {
		var err error
		var done func()
		if h, done, err = c.broker.looseOf(ctx, c.said.Lease, &o); err != nil {
			return nil, err
		}
		defer done()
	} else {
		s, done, err := c.enter(&ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		if h, err = s.named(&o); err != nil {
			return nil, err
		}
		cmd, err := c.asSaid(ctx, h, &o)
		c.broker.learn(s, h, err)
		return cmd, err
	}
	return c.asSaid(ctx, h, &o)
}

func (c *Call) asSaid(ctx context.Context, h *holding, o *RunOptions) (*client.Cmd, error) {
	if show := c.broker.config.Progress; o.Progress && show != nil {
		var end func()
		c.streams, end = show(c.streams)
		defer end()
	}
	attempt := func(stdin io.Reader) (*client.Cmd, error) {
		return c.under(ctx, h, func(cl *client.Client) *client.Cmd {
			cmd := cl.Command(ctx, o.Connector, o.Command, c.said.Args...)
			cmd.Version, cmd.OperationID, cmd.Stdin = o.Version, o.OperationID, stdin
			return cmd
		})
	}
	if o.Stdin == "no" {
		return attempt(nil)
	}
	cmd, err := attempt(c.streams.Stdin)
	var refused *client.RefusedError
	if o.Stdin == "auto" && errors.As(err, &refused) && refused.Code == protocol.CodeInputRejected && !errors.Is(err, client.ErrOutcomeUnknown) {
		return attempt(nil) // nothing ran and nothing was read
	}
	return cmd, err
}

// looseOf keeps the client of a lease that lend run brought, for the next one.
func (b *Broker) looseOf(ctx context.Context, text []byte, o *RunOptions) (*holding, func(), error) {
	f, err := lease.ParseArmor(text, lease.AddressRule{AllowLocal: true})
	if err != nil {
		return nil, nil, err
	}
	for _, a := range o.Addresses {
		if _, err := multiaddr.NewMultiaddr(a); err != nil || len(f.Addresses) >= maxAddresses {
			return nil, nil, fmt.Errorf("read address %s: not a multiaddr, or too many", name.Quote(a))
		}
		if !slices.Contains(f.Addresses, a) {
			f.Addresses = append(f.Addresses, a)
		}
	}
	k := looseKey(sha256.Sum256(fmt.Append(text, "\x00", strconv.FormatInt(int64(o.Wait), 10), o.Addresses)))
	b.mu.Lock()
	h := b.loose[k]
	b.mu.Unlock()
	if h != nil && !h.expired(b.config.Now()) {
		return h, func() {}, nil
	}
	if h, err = b.hold(ctx, client.Static(f), false, o.Wait); err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch other := b.loose[k]; {
	case b.closed:
		return nil, nil, errors.Join(ErrClosed, h.client.Close())
	case other != nil && !other.expired(b.config.Now()): // it came meanwhile
		return other, func() {}, h.client.Close()
	case other == nil && len(b.loose) >= maxLoose:
		return h, h.leave, nil
	case other != nil:
		b.wg.Go(other.leave)
	}
	b.loose[k] = h
	return h, func() {}, nil
}
