//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"

	"github.com/lendcli/lend/e2e/shaper"
	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/lease"
)

const (
	groupFar  = "link of 100 ms"
	groupNear = "link of 20 ms"

	roundTrips = "round trips"
)

// What is done over a long link.
const (
	warmStart = "start, warm"
	coldStart = "start, new connection"
	mebibyte  = "1 MiB of output, warm"
)

const (
	ownerAddress  = "10.214.0.1"
	callerAddress = "10.214.0.2"
)

// longLink is an owner behind a line of a namespace of its own. It is made for the
// first case that needs it.
type longLink struct {
	dir, bin, ns string // ns: the prefix of both namespaces
	trip         time.Duration

	world  *world
	leases map[string][]byte // armoured, by transport and Connector
	closer []func()
	made   error
	tried  bool
}

func (l *longLink) close() {
	for _, f := range slices.Backward(l.closer) {
		f()
	}
}

func (l *longLink) owner() string  { return l.ns + "-owner" }
func (l *longLink) caller() string { return l.ns + "-caller" }

func (l *longLink) make(ctx context.Context) error {
	if l.tried {
		return l.made
	}
	l.tried = true
	l.made = l.build(ctx)
	return l.made
}

func (l *longLink) build(ctx context.Context) error {
	for _, ns := range []string{l.owner(), l.caller()} {
		if err := shaper.AddNamespace(ctx, ns); err != nil {
			return err
		}
		l.closer = append(l.closer, func() { _ = shaper.DeleteNamespace(context.WithoutCancel(ctx), ns) })
	}
	line, err := shaper.Open(shaper.Shape{Delay: l.trip / 2}, 1, [2]string{l.owner(), l.caller()})
	if err != nil {
		return err
	}
	l.closer = append(l.closer, func() { _ = line.Close() })
	err = errors.Join(shaper.SetUp(ctx, l.owner(), ownerAddress), shaper.SetUp(ctx, l.caller(), callerAddress))
	if err != nil {
		return err
	}
	l.world = &world{
		dir: l.dir, bin: l.bin, in: []string{"ip", "netns", "exec", l.owner()},
		listen: []string{"/ip4/" + ownerAddress + "/tcp/5363", "/ip4/" + ownerAddress + "/udp/5363/quic-v1"},
	}
	if err := l.world.start(context.WithoutCancel(ctx), nil); err != nil { // it outlives the case
		return err
	}
	l.closer = append(l.closer, l.world.stop)
	l.leases = map[string][]byte{}
	for _, transport := range []string{"TCP+Noise", "QUIC"} {
		for connector := range lends() {
			if _, l.leases[transport+" "+connector], err = l.world.issue(ctx, "bench", connector, transport); err != nil {
				return err
			}
		}
	}
	return nil
}

// errand is what the caller's process is told.
type errand struct {
	Key       []byte
	Leases    map[string][]byte // by Connector
	Transport string
	What      string
	Trip      time.Duration
	N         int
}

// do measures in a process in the caller's namespace.
func (l *longLink) do(ctx context.Context, what, transport string, n int) (Sample, error) {
	if err := l.make(ctx); err != nil {
		return nil, err
	}
	e := errand{Leases: map[string][]byte{}, Transport: transport, What: what, Trip: l.trip, N: n}
	var err error
	if e.Key, err = crypto.MarshalPrivateKey(l.world.key); err != nil {
		return nil, err
	}
	for connector := range lends() {
		e.Leases[connector] = l.leases[transport+" "+connector]
	}
	in, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", l.caller(), self, "-role", "far")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, said.Bytes())
	}
	var s Sample
	return s, json.Unmarshal(out, &s)
}

// runErrand is the caller's process.
func runErrand() error {
	var e errand
	if err := json.NewDecoder(os.Stdin).Decode(&e); err != nil {
		return err
	}
	key, err := crypto.UnmarshalPrivateKey(e.Key)
	if err != nil {
		return err
	}
	took, err := e.run(context.Background(), key)
	if err != nil {
		return err
	}
	slices.Sort(took)
	trips := float64(took[len(took)/2]) / float64(e.Trip)
	return json.NewEncoder(os.Stdout).Encode(Sample{roundTrips: trips})
}

func (e *errand) run(ctx context.Context, key crypto.PrivKey) (took []time.Duration, err error) {
	command := []string{"true"}
	if e.What == mebibyte {
		command = []string{"produce", fmt.Sprint(1 << 20)}
	}
	var s *sdk
	defer func() {
		if s != nil {
			s.close()
		}
	}()
	before := 3 // that do not count: the connection, and the window of its TCP
	if e.What == coldStart {
		before = 0
	}
	for i := range before + e.N {
		if s == nil || e.What == coldStart {
			if s != nil {
				s.close()
			}
			if s, err = e.connect(key); err != nil {
				return nil, err
			}
		}
		began := time.Now()
		if err := s.run(ctx, command, nil, io.Discard); err != nil {
			return nil, err
		}
		if i >= before {
			took = append(took, time.Since(began))
		}
	}
	return took, nil
}

// connect makes a host and clients; the connection is made by the first command.
func (e *errand) connect(key crypto.PrivKey) (*sdk, error) {
	h, err := newHost(e.Transport, key)
	if err != nil {
		return nil, err
	}
	s := &sdk{host: h, clients: map[string]*client.Client{}}
	for connector, text := range e.Leases {
		f, err := lease.ParseArmor(text, lease.AddressRule{AllowLocal: true})
		if err == nil {
			s.clients[connector], err = client.New(client.Config{Host: h, Leases: client.Static(f), Wait: time.Minute})
		}
		if err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// addLinks adds what is measured on long links, if there can be any.
func (f *field) addLinks(s *Suite) {
	far, near := f.long("far", 100*time.Millisecond), f.long("near", 20*time.Millisecond)
	for _, transport := range []string{"TCP+Noise", "QUIC"} {
		for _, what := range []string{warmStart, coldStart} {
			s.AddSome(fewReps, groupFar, what+", "+transport, func(ctx context.Context) (Sample, error) { return far.do(ctx, what, transport, s.N(16)) })
		}
		s.AddSome(fewReps, groupNear, mebibyte+", "+transport, func(ctx context.Context) (Sample, error) { return near.do(ctx, mebibyte, transport, s.N(32)) })
	}
}

func (f *field) long(name string, trip time.Duration) *longLink {
	l := &longLink{dir: filepath.Join(f.dir, name), bin: f.bin, ns: fmt.Sprintf("lend-bench-%d-%s", os.Getpid(), name), trip: trip}
	f.closer = append(f.closer, l.close)
	return l
}
