//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
)

// Units of the crowd.
const (
	groupCrowd    = "crowd"
	perConnection = "KiB an idle connection"
	perOperation  = "KiB a live operation"
	perSupervisor = "KiB a supervisor (PSS)"
	crowdedStart  = "p50 in the crowd ÷ p50 alone"
)

const byLean = "lean libp2p host"

// crowd measures what idle connections and silent operations cost a gateway of its
// own: memory, and time of a start.
type crowd struct {
	dir, bin         string
	peers, silent, n int // connections, operations, starts that are measured
}

// gatewayCase is one repetition.
func (c crowd) gatewayCase(ctx context.Context) (Sample, error) {
	dir, err := os.MkdirTemp(c.dir, "crowd-")
	if err != nil {
		return nil, err
	}
	keys, ids, err := identities(c.peers)
	if err != nil {
		return nil, err
	}
	w, err := newWorld(ctx, dir, c.bin, ids...)
	if err != nil {
		return nil, err
	}
	defer w.stop()
	s, err := w.sdk(ctx, "TCP+Noise")
	if err != nil {
		return nil, err
	}
	defer s.close()
	nothing := func(ctx context.Context) error { return s.run(ctx, []string{"true"}, nil, &counter{}) }
	alone, err := latency(ctx, c.n, nothing)
	if err != nil {
		return nil, err
	}
	f, _, err := w.issue(ctx, "bench", "child", "TCP")
	if err != nil {
		return nil, err
	}
	sample := Sample{}
	pid := w.gateway.Process.Pid
	leave, err := measureIdle(ctx, sample, pid, f.Addresses[0], keys)
	if err != nil {
		return nil, err
	}
	defer leave()
	before, _ := memory(pid)
	end, live, err := c.beSilent(ctx, s)
	if err != nil {
		return nil, err
	}
	defer end()
	after, _ := memory(pid)
	sample[perOperation] = float64(after-before) / float64(c.silent)
	sample[perSupervisor] = supervisors(pid)
	crowded, err := latency(ctx, c.n, nothing)
	if err != nil {
		return nil, err
	}
	sample[crowdedStart] = crowded[p50] / alone[p50]
	if n := live(); n != c.silent {
		return nil, fmt.Errorf("%d of %d operations are still live", n, c.silent)
	}
	return sample, nil
}

// beSilent starts operations that do nothing until end is called; live counts those that
// have not ended.
func (c crowd) beSilent(ctx context.Context, s *sdk) (end func(), live func() int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	var n atomic.Int64
	live = func() int { return int(n.Load()) }
	end = func() { cancel(); running.Wait() }
	for range c.silent {
		cmd := s.clients["child"].Command(ctx, "child", "sleep")
		if err := cmd.Start(); err != nil {
			end()
			return nil, nil, err
		}
		n.Add(1)
		running.Go(func() { _ = cmd.Wait(); n.Add(-1) })
	}
	return end, live, nil
}

// leanCase is what connections cost where nothing but libp2p is.
func (c crowd) leanCase(ctx context.Context) (Sample, error) {
	keys, _, err := identities(c.peers)
	if err != nil {
		return nil, err
	}
	r, pid, stop, err := startRaw(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	conns := r["TCP+Noise"].host.Network().ConnsToPeer(r["TCP+Noise"].peer)
	if len(conns) == 0 {
		return nil, errors.New("not connected")
	}
	sample := Sample{}
	leave, err := measureIdle(ctx, sample, pid, fmt.Sprintf("%s/p2p/%s", conns[0].RemoteMultiaddr(), conns[0].RemotePeer()), keys)
	if err != nil {
		return nil, err
	}
	leave()
	return sample, nil
}

func identities(n int) (keys []crypto.PrivKey, ids []peer.ID, err error) {
	for range n {
		key, err := newKey()
		if err != nil {
			return nil, nil, err
		}
		id, err := peer.IDFromPrivateKey(key)
		if err != nil {
			return nil, nil, err
		}
		keys, ids = append(keys, key), append(ids, id)
	}
	return keys, ids, nil
}

// perAddress is how many hosts share one loopback address: fewer than a gateway
// takes from one.
const perAddress = 50

// measureIdle connects hosts that then say nothing, and adds what the process grew
// by for each.
func measureIdle(ctx context.Context, sample Sample, pid int, address string, keys []crypto.PrivKey) (leave func(), err error) {
	m, err := multiaddr.NewMultiaddr(address)
	if err != nil {
		return nil, err
	}
	to, err := peer.AddrInfoFromP2pAddr(m)
	if err != nil {
		return nil, err
	}
	before, err := memory(pid)
	if err != nil {
		return nil, err
	}
	var hosts []host.Host
	leave = func() {
		for _, h := range hosts {
			_ = h.Close()
		}
	}
	for i, key := range keys {
		// A host that listens dials from the address that it listens on.
		h, err := newHost("TCP+Noise", key, fmt.Sprintf("/ip4/127.0.1.%d/tcp/0", 1+i/perAddress))
		if err == nil {
			hosts = append(hosts, h)
			err = h.Connect(ctx, *to)
		}
		if err != nil {
			leave()
			return nil, fmt.Errorf("connect host %d: %w", i, err)
		}
	}
	select { // what was needed for the handshakes only may go
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
	}
	after, err := memory(pid)
	sample[perConnection] = float64(after-before) / float64(len(keys))
	return leave, err
}

// memory is the resident set of a process, in KiB.
func memory(pid int) (int, error) { return rollup(pid, "Rss") }

func rollup(pid int, name string) (int, error) {
	text := strings.TrimSuffix(valueOf(fmt.Sprintf("/proc/%d/smaps_rollup", pid), name), " kB")
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return n, nil
}

// supervisors is the mean proportional set of the gateway's own children.
func supervisors(pid int) float64 {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	sum, n := 0, 0
	for _, t := range tasks {
		b, _ := os.ReadFile(t)
		for _, word := range strings.Fields(string(b)) {
			child, _ := strconv.Atoi(word)
			if pss, err := rollup(child, "Pss"); err == nil {
				sum, n = sum+pss, n+1
			}
		}
	}
	return float64(sum) / float64(max(n, 1))
}
