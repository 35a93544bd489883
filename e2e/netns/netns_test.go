//go:build linux

package netns

import (
	"bytes"
	"io"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/e2e/rig"
	"github.com/lendcli/lend/e2e/shaper"
)

// rough is a bad line: 50 ms there and back, 1 % of the packets lost each way, some
// out of order or twice.
func rough() shaper.Shape {
	return shaper.Shape{Delay: 25 * time.Millisecond, Loss: 0.01, Reorder: 0.02, Jitter: 15 * time.Millisecond, Duplicate: 0.005}
}

// narrow is a line so narrow that a run can be caught in the middle.
func narrow() shaper.Shape { return shaper.Shape{Delay: 5 * time.Millisecond, Rate: 1 << 20} }

// commands are what is caught in the middle: cat has bytes both ways.
func commands() []string {
	if rig.Long() {
		return []string{"cat", "print"}
	}
	return []string{"cat"}
}

func size(long, short int) int {
	if rig.Long() {
		return long
	}
	return short
}

// meter counts what it takes.
type meter struct {
	b bytes.Buffer // read when its writer has ended
	n atomic.Int64
}

func (m *meter) Bytes() []byte { return m.b.Bytes() }

func (m *meter) Write(p []byte) (int, error) {
	m.n.Add(int64(len(p)))
	return m.b.Write(p)
}

// checkOne looks at the record: the operation ran once and ended well.
func (n *net) checkOne(t *testing.T, op string, starts int) {
	t.Helper()
	require.Equal(t, starts, n.Starts())
	require.True(t, rig.Until(rig.Patience, func() bool { return n.operation(op).State != "running" }))
	require.Equal(t, "OK", n.operation(op).Code)
}

func (n *net) operation(id string) rig.Operation {
	for _, o := range n.Operations() {
		if o.ID == id {
			return o
		}
	}
	return rig.Operation{}
}

// TestRoughLine: every byte of output and input is right on a bad line.
func TestRoughLine(t *testing.T) {
	for name, part := range transports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNet(t, "1m", rough())
			file, want := n.Lease(part), rig.Pattern(size(16<<20, 1<<20))
			began := time.Now()
			for i, args := range [][]string{{"print", strconv.Itoa(len(want))}, {"cat"}} {
				var out meter
				op := "op-on-a-rough-line-" + args[0]
				run := n.Run(file, op, args...)
				run.Cmd.Stdout = &out
				if args[0] == "cat" {
					run.Cmd.Stdin = bytes.NewReader(want)
				}
				run.Start(t)
				require.Zero(t, run.Wait(t, 5*time.Minute), "%s", &run.Stderr)
				require.True(t, bytes.Equal(want, out.Bytes()), "%d bytes of %d", len(out.Bytes()), len(want))
				n.checkOne(t, op, i+1)
			}
			for i := range 20 { // many short ones: each is several round trips
				var out meter
				run := n.Run(file, "", "print", "17")
				run.Cmd.Stdout = &out
				run.Start(t)
				require.Zero(t, run.Wait(t, rig.Patience), "run %d: %s", i, &run.Stderr)
				require.Equal(t, string(rig.Pattern(17)), string(out.Bytes()))
			}
			require.Equal(t, 22, n.Starts())
			t.Logf("%d bytes out, %d in and out, 20 short runs: %s", len(want), len(want), time.Since(began).Round(time.Millisecond))
		})
	}
}

// caught is a run in the middle of its bytes.
type caught struct {
	run  *rig.Run
	out  meter
	want []byte
	op   string
}

// catch starts a run on a narrow line and returns when it is in the middle.
func (n *net) catch(t *testing.T, part, command string, total int) *caught {
	t.Helper()
	c := &caught{want: rig.Pattern(total), op: "op-caught-in-the-middle-" + command}
	args := []string{command}
	if command == "print" {
		args = append(args, strconv.Itoa(total))
	}
	c.run = n.Run(n.Lease(part), c.op, args...)
	if command == "cat" {
		c.run.Cmd.Stdin = io.MultiReader(bytes.NewReader(c.want)) // no file: a pipe
	}
	c.run.Cmd.Stdout = &c.out
	c.run.Start(t)
	require.True(t, rig.Until(rig.Patience, func() bool { return c.out.n.Load() > int64(total/8) }), "%s", &c.run.Stderr)
	require.Less(t, c.out.n.Load(), int64(total))
	return c
}

// whole waits for the end, with every byte.
func (c *caught) whole(t *testing.T, atMost time.Duration) {
	t.Helper()
	require.Zero(t, c.run.Wait(t, atMost), "%s", &c.run.Stderr)
	require.True(t, bytes.Equal(c.want, c.out.Bytes()), "%d bytes of %d", len(c.out.Bytes()), len(c.want))
}

// TestBlackHole: for five seconds nothing arrives, in the middle of a run.
func TestBlackHole(t *testing.T) {
	for name, part := range transports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNet(t, "1m", narrow())
			for i, command := range commands() {
				c := n.catch(t, part, command, 4<<20)
				n.link.SetHole(true)
				before := c.out.n.Load()
				began := time.Now()
				time.AfterFunc(5*time.Second, func() { n.link.SetHole(false) })
				c.whole(t, 2*time.Minute)
				took := time.Since(began)
				require.Greater(t, took, 5*time.Second)
				n.checkOne(t, c.op, i+1)
				t.Logf("%s: cut at %d of %d, whole %s later", command, before, len(c.want), took.Round(time.Millisecond))
			}
		})
	}
}

// TestChangeOfAddress: the caller's machine moves to another network in the middle
// of a run. What it had before is gone.
func TestChangeOfAddress(t *testing.T) {
	for name, part := range transports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNet(t, "2m", narrow())
			for i, command := range commands() {
				c := n.catch(t, part, command, 4<<20)
				from, to := callerAddress, otherAddress
				if i%2 == 1 {
					from, to = to, from
				}
				before, began := c.out.n.Load(), time.Now()
				ip(t, "-n", n.caller, "address", "del", from+"/24", "dev", "lend0")
				ip(t, "-n", n.caller, "address", "add", to+"/24", "dev", "lend0")
				c.whole(t, 3*time.Minute)
				n.checkOne(t, c.op, i+1)
				t.Logf("%s: moved at %d of %d, whole %s later", command, before, len(c.want), time.Since(began).Round(time.Millisecond))
			}
		})
	}
}

// TestCutForGood: the line stays dead for longer than the grace. The caller does not
// know the outcome, and the operation is ended.
func TestCutForGood(t *testing.T) {
	for name, part := range transports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !rig.Long() {
				t.Skip("needs LEND_TEST_LONG=1: a minute")
			}
			n := newNet(t, "3s", narrow())
			c := n.catch(t, part, "print", 64<<20)
			n.link.SetHole(true)
			began := time.Now()
			require.Equal(t, 255, c.run.Wait(t, 3*time.Minute), "%s", &c.run.Stderr)
			told := time.Since(began)
			require.True(t, bytes.HasPrefix(c.want, c.out.Bytes()))
			require.True(t, rig.Until(2*time.Minute, func() bool { return n.operation(c.op).State == "ended" }), "%+v", n.operation(c.op))
			ended := time.Since(began)
			require.Equal(t, "PEER_GONE", n.operation(c.op).Code)
			require.Equal(t, 1, n.Starts())
			n.link.SetHole(false)
			again := n.Run(n.Lease(part), "", "print", "17")
			again.Start(t)
			require.Zero(t, again.Wait(t, rig.Patience), "%s", &again.Stderr)
			t.Logf("the caller knew after %s, it was ended after %s", told.Round(time.Millisecond), ended.Round(time.Millisecond))
		})
	}
}

// TestSlowLine: a line that takes many seconds for one window is slow, not dead. No
// link is given up on it.
func TestSlowLine(t *testing.T) {
	for name, part := range transports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !rig.Long() {
				t.Skip("needs LEND_TEST_LONG=1: two minutes")
			}
			n := newNet(t, "2m", shaper.Shape{Delay: 100 * time.Millisecond, Rate: 48 << 10})
			for i, command := range []string{"print", "cat"} {
				began := time.Now()
				c := n.catch(t, part, command, 2<<20)
				c.whole(t, 5*time.Minute)
				n.checkOne(t, c.op, i+1)
				t.Logf("%s: %d bytes in %s", command, len(c.want), time.Since(began).Round(time.Millisecond))
			}
			require.NotContains(t, n.gateway.Text(), "stream ended early")
		})
	}
}
