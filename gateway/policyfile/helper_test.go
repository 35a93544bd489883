package policyfile

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func id(seed byte) string {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	return must(name.PeerIDFromKey(key.Public().(ed25519.PublicKey))).String()
}

// good is a policy that is served; n makes it another one.
func good(n int) string {
	return fmt.Sprintf(`policy: 1
issuers:
  owner: {id: %s, connectors: any}
peers:
  agent: %s
commands:
  fx:
    print:
      summary: prints
      effect: read
      arguments: [print]
      parameters:
        size: {flag: --size, type: integer, maximum: %d}
allow:
  - name: prints
    to: [agent]
    connector: fx
    version: "1.0.0"
    commands: {print: {}}
tests:
  - {name: small, peer: agent, run: [fx, print, --size=1], want: allow}
`, id(1), id(2), n+1)
}

// contracts has one CLI without a manifest's commands.
type contracts struct{ err error }

func (c contracts) Contract(name.ConnectorKey, name.Version, name.ConnectionID) (argv.Contract, string, error) {
	return argv.Contract{Command: "fx"}, "sha256:" + strings.Repeat("0", 64), c.err
}

// heard is a gateway that writes down what it is told.
type heard struct {
	mu      sync.Mutex // guards told and in
	told    []string
	in      map[string]bool // digests that were reloaded
	changed chan struct{}
}

func newHeard() *heard { return &heard{in: map[string]bool{}, changed: make(chan struct{}, 1000)} }

func (h *heard) add(s string) {
	h.mu.Lock()
	h.told = append(h.told, s)
	h.mu.Unlock()
	h.changed <- struct{}{}
}

func (h *heard) Reload(p *policy.Policy) {
	h.mu.Lock()
	h.in[p.Digest()] = true
	h.mu.Unlock()
	h.add("reload")
}

func (h *heard) Suspend() { h.add("suspend") }

func (h *heard) Record(e ledger.Event) { h.add(e.Name) }

// take returns what was told since the last call.
func (h *heard) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := strings.Join(h.told, " ")
	h.told = nil
	return s
}

func (h *heard) await(t *testing.T, want string) {
	t.Helper()
	end := time.NewTimer(20 * time.Second)
	defer end.Stop()
	var got []string
	for {
		if s := h.take(); s != "" {
			got = append(got, s)
		}
		if strings.Join(got, " ") == want {
			return
		}
		select {
		case <-h.changed:
		case <-end.C:
			require.Equal(t, want, strings.Join(got, " "))
		}
	}
}

// disk is a file of its own, and a notifier for it.
type disk struct {
	mu   sync.Mutex // guards data and err
	data []byte
	err  error
	ch   chan struct{}
	deaf error
}

func newDisk(s string) *disk { return &disk{data: []byte(s), ch: make(chan struct{}, 1)} }

func (d *disk) read() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.data, d.err
}

func (d *disk) quietly(s string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.data, d.err = []byte(s), err
}

func (d *disk) write(s string) { d.set(s, nil) }

func (d *disk) set(s string, err error) {
	d.quietly(s, err)
	select {
	case d.ch <- struct{}{}:
	default:
	}
}

func (d *disk) arm(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.deaf
}
func (d *disk) changed() <-chan struct{} { return d.ch }
func (d *disk) close() error             { return nil }

// rig is a watcher of a disk.
type rig struct {
	*heard
	disk    *disk
	w       *Watcher
	log     *bytes.Buffer
	problem error // of the contracts
}

const file = "/no/such/policy.yaml"

func config(h *heard, read func() ([]byte, error), log zerolog.Logger) Config {
	return Config{
		File: file, Read: read, Gateway: h, Log: log,
		Contracts: func() (policy.Contracts, error) { return contracts{}, nil },
		InForce:   must(policy.Parse(file, []byte(good(1)))),
	}
}

// newRig must be called in a bubble of testing/synctest.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{heard: newHeard(), disk: newDisk(good(1)), log: &bytes.Buffer{}}
	cfg := config(r.heard, r.disk.read, zerolog.New(r.log))
	cfg.Contracts = func() (policy.Contracts, error) { return contracts{}, r.problem }
	r.w = start(cfg, r.disk)
	t.Cleanup(func() { require.NoError(t, r.w.Close()) })
	require.Equal(t, "policy.loaded", r.take())
	return r
}

var errUnsafe = errors.New("others may write it")

func gone() error { return &os.PathError{Op: "open", Path: file, Err: os.ErrNotExist} }
