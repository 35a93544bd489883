package hostile

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/multiformats/go-multiaddr"
	"github.com/rs/zerolog"

	"github.com/lendcli/lend/gateway"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

const childEnv = "LEND_HOSTILE_GATEWAY"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// hello is the first line of the child, stats each further one.
type hello struct {
	ID    string
	Addrs []string
}

type stats struct {
	Goroutines, Files int
	Heap              uint64 // bytes in use after a collection
	Peak              uint64 // bytes taken from the system, ever
	Kept              int64  // bytes of input and output
	Starts, Running   int64
	Printed           map[int]int // starts by size
	Operations        int
	LedgerErr         string
	LedgerBytes       int64
	Peers             int
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// serve is the child: dir holds key and policy.yaml. Each line of the input asks
// for stats; "reload" reads the policy again; the end of the input ends it.
func serve(dir string) error {
	seed, err := os.ReadFile(filepath.Join(dir, "key"))
	if err != nil {
		return err
	}
	book, err := ledger.Open(ledger.Config{Dir: filepath.Join(dir, "ledger")})
	if err != nil {
		return err
	}
	defer book.Close()
	none, err := revocation.New()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	host := &fake{printed: map[int]int{}}
	p, err := readPolicy(dir)
	if err != nil {
		return err
	}
	node, err := gateway.New(gateway.Config{
		Key: ed25519.NewKeyFromSeed(seed), Policy: p, Runtime: host, Ledger: book, Revocations: none,
		Log: zerolog.New(log).Level(zerolog.DebugLevel),
		Listen: []multiaddr.Multiaddr{
			must(multiaddr.NewMultiaddr("/ip4/127.0.0.1/tcp/0")), must(multiaddr.NewMultiaddr("/ip4/127.0.0.1/udp/0/quic-v1")),
		},
	})
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	h := hello{ID: node.ID().String()}
	for _, a := range node.Addrs() {
		h.Addrs = append(h.Addrs, a.String())
	}
	if err := out.Encode(h); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if in.Text() == "reload" {
			if p, err = readPolicy(dir); err != nil {
				return err
			}
			node.Reload(p)
		}
		if err := out.Encode(measure(node, host, dir)); err != nil {
			return err
		}
	}
	return node.Close()
}

func readPolicy(dir string) (*policy.Policy, error) {
	b, err := os.ReadFile(filepath.Join(dir, "policy.yaml"))
	if err != nil {
		return nil, err
	}
	return policy.Parse("policy.yaml", b)
}

func measure(node *gateway.Node, host *fake, dir string) stats {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	peak := m.Sys
	debug.FreeOSMemory()
	runtime.ReadMemStats(&m)
	status := node.Status()
	s := stats{
		Goroutines: runtime.NumGoroutine(), Heap: m.HeapInuse + m.StackInuse, Peak: peak, Kept: status.Memory,
		Starts: host.starts.Load(), Running: host.running.Load(), Printed: host.prints(),
		Operations: len(status.Operations), Peers: len(status.Peers),
	}
	if status.LedgerErr != nil {
		s.LedgerErr = status.LedgerErr.Error()
	}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		s.Files = len(files)
	}
	if logs, err := filepath.Glob(filepath.Join(dir, "ledger", "*.log")); err == nil {
		for _, l := range logs {
			if i, err := os.Stat(l); err == nil {
				s.LedgerBytes += i.Size()
			}
		}
	}
	return s
}

// fake is a Connector whose commands are functions. It counts starts, and those of
// print by the size, which is as good as a name.
type fake struct {
	starts, running atomic.Int64

	mu      sync.Mutex // guards printed
	printed map[int]int
}

func (f *fake) prints() map[int]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.printed)
}

func descriptor() route.Descriptor {
	number := argv.Schema{Type: argv.TypeInteger}
	text := argv.Schema{Type: argv.TypeString, FreeText: true}
	size := argv.Parameter{Name: must(name.ParseParameter("size")), Schemas: []argv.Schema{number}, Flag: &argv.Flag{Name: "--size"}}
	input := argv.Parameter{
		Name: must(name.ParseParameter("input")), Required: true, Schemas: []argv.Schema{text}, Stdin: &argv.Stdin{MaxBytes: 64 << 20},
	}
	c := argv.Contract{Command: "fx"}
	for _, d := range []struct {
		name string
		p    []argv.Parameter
	}{{"cat", []argv.Parameter{input}}, {"deaf", []argv.Parameter{input}}, {"fail", nil}, {"print", []argv.Parameter{size}}, {"sleep", nil}} {
		c.Commands = append(c.Commands, argv.Command{
			Name: must(name.ParseCommand(d.name)), Effect: argv.EffectRead, Arguments: []string{d.name}, Parameters: d.p,
		})
	}
	sum := sha256.Sum256(must(argv.CanonicalJSON(c.Semantics())))
	return route.Descriptor{Contract: c, Identity: route.Identity{
		Connection: must(name.ParseConnectionID("main")), Connector: must(name.ParseConnectorKey("fx")),
		Version: must(name.ParseVersion("1.0.0")), ReleaseDigest: strings.Repeat("0", 64),
		Generation: route.Generation{Epoch: "e", Number: 1}, ContractHash: "sha256:" + hex.EncodeToString(sum[:]),
	}}
}

func (f *fake) Resolve(q route.Query) (route.Descriptor, error) {
	d := descriptor()
	if q.Connector != d.Identity.Connector || q.Version != d.Identity.Version {
		return route.Descriptor{}, route.ErrNotFound
	}
	return d, nil
}

func (f *fake) Start(_ context.Context, r route.StartRequest) (route.Process, error) {
	f.starts.Add(1)
	args := r.Call.Arguments
	if args[0] == "fail" {
		return nil, errors.New("it does not start")
	}
	p := &process{end: make(chan struct{}), exited: make(chan struct{}), closed: func() { f.running.Add(-1) }}
	var out, errs io.WriteCloser
	p.stdout, out = io.Pipe()
	p.stderr, errs = io.Pipe()
	var in io.Reader
	if r.Stdin {
		pr, pw := io.Pipe()
		in, p.stdin = pr, pw
	}
	size := 0
	if args[0] == "print" {
		size, _ = strconv.Atoi(strings.TrimPrefix(args[len(args)-1], "--size="))
		f.mu.Lock()
		f.printed[size]++
		f.mu.Unlock()
	}
	f.running.Add(1)
	go func() {
		defer close(p.exited)
		defer errs.Close()
		defer out.Close()
		switch args[0] {
		case "cat":
			_, _ = io.Copy(out, in)
		case "print":
			_, _ = io.CopyN(out, zeros{}, int64(size))
		default:
			<-p.end
		}
	}()
	return p, nil
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

type process struct {
	stdin          io.WriteCloser
	stdout, stderr io.ReadCloser
	end, exited    chan struct{}
	once, closing  sync.Once
	closed         func()
}

func (p *process) Stdin() io.WriteCloser { return p.stdin }
func (p *process) Stdout() io.ReadCloser { return p.stdout }
func (p *process) Stderr() io.ReadCloser { return p.stderr }
func (p *process) Kill() error           { return p.Terminate() }

func (p *process) Wait(ctx context.Context) (route.Exit, error) {
	select {
	case <-p.exited:
		return route.Exit{}, nil
	default:
	}
	select {
	case <-p.exited:
		return route.Exit{}, nil
	case <-ctx.Done():
		return route.Exit{}, ctx.Err()
	}
}

func (p *process) Terminate() error {
	p.once.Do(func() {
		close(p.end)
		_ = p.stdout.Close()
		_ = p.stderr.Close()
		if p.stdin != nil {
			_ = p.stdin.Close()
		}
	})
	return nil
}

func (p *process) Close() error {
	p.closing.Do(func() {
		_ = p.Terminate()
		<-p.exited
		p.closed()
	})
	return nil
}
