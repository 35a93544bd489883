package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/protocol"
)

// expected is what fx print N prints.
func expected(n int) []byte {
	return bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuvwxyz\n"), n/37+1)[:n]
}

// stuck waits until the operation has given so many bytes and can give no more, as
// nobody reads them.
func (s *served) stuck(t *testing.T, op string, least uint64) {
	t.Helper()
	var last uint64
	ok := until(patience, func() bool {
		text, err := s.lend(s.vars["OWNER"], "status", "--json")
		require.NoError(t, err)
		var status struct {
			Operations []struct {
				ID     string
				Stdout uint64
			}
		}
		require.NoError(t, json.Unmarshal([]byte(text), &status))
		var now uint64
		for _, o := range status.Operations {
			if o.ID == op {
				now = o.Stdout
			}
		}
		same := now == last
		last = now
		return same && now >= least
	})
	require.True(t, ok, "%d bytes were given", last)
}

// slowly reads in pieces of odd sizes.
func slowly(r io.Reader) io.Reader { return iotest.HalfReader(io.LimitReader(r, 1<<40)) }

// full picks the size of a test: the whole one with LEND_TEST_FULL=1.
func full(whole, short int) int {
	if fullRun() {
		return whole
	}
	return short
}

// TestEveryByte runs a printer many times, and one of many sizes through a slow
// reader, over both transports.
func TestEveryByte(t *testing.T) {
	s := serve(t)
	for name, part := range transports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := s.client("CALLER", over(s.file, part))
			for i := range full(1000, 50) {
				out, err := c.Command(t.Context(), "fx", "print", "17").Output()
				require.NoError(t, err, "run %d", i)
				require.Equal(t, string(expected(17)), string(out), "run %d", i)
			}
			for _, n := range []int{0, 1, 65479, 65480, 65481, 65535, 65536, 65537, full(64<<20, 4<<20)} {
				t.Run(strconv.Itoa(n), func(t *testing.T) {
					cmd := c.Command(t.Context(), "fx", "print", strconv.Itoa(n))
					out, err := cmd.StdoutPipe()
					require.NoError(t, err)
					require.NoError(t, cmd.Start())
					if n > 1<<20 {
						s.stuck(t, cmd.OperationID, map[string]uint64{"tcp": 1_000_000, "quic": 500_000}[name]) // most of a stream's first window
					}
					got, err := io.ReadAll(slowly(out))
					require.NoError(t, err)
					require.NoError(t, cmd.Wait())
					require.True(t, bytes.Equal(expected(n), got), "%d bytes of %d", len(got), n)
					require.EqualValues(t, n, cmd.Exit().Stdout)
				})
			}
			local, err := exec.CommandContext(t.Context(), s.bin+"/fx", "print", "1000").Output()
			require.NoError(t, err)
			require.Equal(t, expected(1000), local)
		})
	}
}

// TestBothOutputsAndInput sends input through and takes both outputs at once.
func TestBothOutputsAndInput(t *testing.T) {
	s := serve(t)
	for name, part := range transports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := s.client("CALLER", over(s.file, part))
			for _, n := range []int{0, 1, 65480, 65481, 131072, full(64<<20, 3<<20)} {
				var out, errs bytes.Buffer
				cmd := c.Command(t.Context(), "fx", "cat")
				cmd.Stdin, cmd.Stdout, cmd.Stderr = slowly(bytes.NewReader(expected(n))), &out, &errs
				require.NoError(t, cmd.Run())
				require.True(t, bytes.Equal(expected(n), out.Bytes()), "%d bytes of %d", out.Len(), n)
				require.Empty(t, errs.String())
				require.EqualValues(t, n, cmd.Exit().Stdin)
			}
			var errs bytes.Buffer
			cmd := c.Command(t.Context(), "fx", "errprint", "100000")
			cmd.Stderr = &errs
			require.NoError(t, cmd.Run())
			require.True(t, bytes.Equal(expected(100000), errs.Bytes()))
		})
	}
}

// TestCallersInput answers line by line while the input is open.
func TestCallersInput(t *testing.T) {
	s := serve(t)
	for name, part := range transports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := s.client("CALLER", over(s.file, part)).Command(t.Context(), "fx", "lines")
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			for i := range 20 {
				_, err := fmt.Fprintf(in, "line %d\n", i)
				require.NoError(t, err)
				want := fmt.Sprintf("LINE %d\n", i)
				got := make([]byte, len(want))
				_, err = io.ReadFull(out, got)
				require.NoError(t, err)
				require.Equal(t, want, string(got))
			}
			require.NoError(t, in.Close())
			rest, err := io.ReadAll(out)
			require.NoError(t, err)
			require.Empty(t, rest)
			require.NoError(t, cmd.Wait())
		})
	}
}

// TestStatusesOfTheOutside runs every exit status and some signals.
func TestStatusesOfTheOutside(t *testing.T) {
	s := serve(t)
	c := s.client("CALLER", s.file)
	for _, n := range []int{0, 1, 2, 75, 124, 125, 126, 127, 128, 130, 255} {
		err := c.Command(t.Context(), "fx", "exit", strconv.Itoa(n)).Run()
		require.Equal(t, n, client.ExitStatus(err))
	}
	for _, n := range []int{1, 2, 9, 15} {
		err := c.Command(t.Context(), "fx", "die", strconv.Itoa(n)).Run()
		var exit *client.ExitError
		require.ErrorAs(t, err, &exit)
		require.NotEmpty(t, exit.Signal)
		require.Equal(t, 128+n, client.ExitStatus(err))
	}
}

// TestArgumentsThatNoShellCanSay: a NUL cannot be in an argument of a local process.
func TestArgumentsThatNoShellCanSay(t *testing.T) {
	s := serve(t)
	for name, part := range transports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := s.client("CALLER", over(s.file, part))
			for _, word := range []string{"\x00", "a\x00b", "one\x00", "\x00/etc/passwd", "a\x7f", "\u202e", "a\xff"} {
				for _, args := range [][]string{{"--word", word}, {"--word=" + word}, {word}, {"--", word}} {
					err := c.Command(t.Context(), "fx", "args", args...).Run()
					var refused *client.RefusedError
					require.ErrorAs(t, err, &refused, "%q", args)
					require.Equal(t, protocol.CodeArgumentRejected, refused.Code, "%q", args)
				}
			}
			many := strings.Split(strings.Repeat("a ", 256)+"a", " ")
			require.Len(t, many, 257)
			require.Error(t, c.Command(t.Context(), "fx", "rest", many...).Run())
			require.Error(t, c.Command(t.Context(), "fx", "args", "--word", strings.Repeat("a", 131072)).Run())
		})
	}
	t.Cleanup(func() { require.Zero(t, s.starts()) })
}

// TestNothingIsLeftOfAClient: no goroutine after Close.
func TestNothingIsLeftOfAClient(t *testing.T) {
	s := serve(t)
	before := goleak.IgnoreCurrent()
	for _, part := range transports() {
		c := s.client("CALLER", over(s.file, part))
		require.NoError(t, c.Command(t.Context(), "fx", "print", "100000").Run())
		cmd := c.Command(t.Context(), "fx", "endless")
		cmd.Stdout = failing{}
		require.Error(t, cmd.Run(), "the command dies of its closed output")
		require.Error(t, c.Command(t.Context(), "fx", "hidden").Run())
		require.NoError(t, c.Close())
	}
	goleak.VerifyNone(t, before,
		// Process-wide workers of the libraries, started once.
		goleak.IgnoreAnyFunction("github.com/libp2p/go-flow-metrics.(*sweeper).run"),
		goleak.IgnoreAnyFunction("github.com/libp2p/go-libp2p/p2p/transport/quicreuse.(*reuse).gc"),
	)
}

// failing is a writer whose reader is gone.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, os.ErrClosed }
