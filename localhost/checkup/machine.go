package checkup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lendcli/lend/localhost/process/cgroup"
)

// Facts are what the checks of a machine judge. What the system does not tell is
// zero, and for the numbers a row that is skipped.
type Facts struct {
	System string // "linux"
	UID    int    // below 0: there is no such thing
	Now    time.Time
	// Synchronised tells whether the system's clock follows another; nil: not known.
	Synchronised *bool
	// Free is the room for this user on the disk of the state, in bytes; nil: not
	// known, for the reason in FreeProblem.
	Free        *uint64
	FreeProblem string
	// OpenFiles is the limit of file descriptors of a process.
	OpenFiles uint64
	// ReceiveBuffer and SendBuffer are the largest buffers of a socket, in bytes.
	ReceiveBuffer, SendBuffer int64
	// Cgroup is a cgroup that is delegated to this process.
	Cgroup string
}

// ReadFacts asks the system. dir is the directory that holds the state.
func ReadFacts(dir string) Facts {
	f := systemFacts(dir)
	f.Now = time.Now()
	if found, ok := cgroup.Detect(); ok {
		f.Cgroup = found
	}
	return f
}

// What a machine should have.
const (
	leastFree     = 64 << 20
	enoughFree    = 1 << 30
	leastFiles    = 256
	enoughFiles   = 4096
	enoughBuffers = 7 << 20 // what QUIC asks for
)

// firstDay is before the first release: a clock that says less is wrong.
func firstDay() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// Machine returns the checks of what read found out; it is called once for each.
func Machine(read func() Facts) []Check {
	judge := func(name string, f func(Facts) Row) Check {
		return One(name, func(context.Context) Row { return f(read()) })
	}
	return []Check{
		judge("user", user), judge("clock", clock), judge("disk-space", diskSpace),
		judge("open-files", openFiles), judge("udp-buffers", udpBuffers), judge("cgroup", delegated),
	}
}

func user(f Facts) Row {
	switch {
	case f.UID < 0:
		return Row{Status: Skip, Detail: "this system has no user numbers"}
	case f.UID == 0:
		return Row{
			Status: Warn, Detail: "this is root: a command that is lent could do anything on this machine",
			Fix: "run lend as a user of its own",
		}
	}
	return Row{Status: Pass, Detail: fmt.Sprintf("user %d, not root; commands that are lent run as this user, too", f.UID)}
}

func clock(f Facts) Row {
	switch {
	case f.Now.Before(firstDay()):
		return Row{Status: Fail, Detail: "the clock says " + f.Now.UTC().Format(time.DateOnly) + ": no lease is good then", Fix: "set the clock"}
	case f.Synchronised == nil:
		return Row{Status: Pass, Detail: f.Now.UTC().Format(time.RFC3339) + "; whether it follows another clock is not known"}
	case !*f.Synchronised:
		return Row{
			Status: Warn, Detail: f.Now.UTC().Format(time.RFC3339) + ", and it does not follow another clock: leases end at its word",
			Fix: "turn on time synchronisation (timedatectl set-ntp true)",
		}
	}
	return Row{Status: Pass, Detail: f.Now.UTC().Format(time.RFC3339) + ", synchronised"}
}

func diskSpace(f Facts) Row {
	if f.Free == nil {
		return Row{Status: Skip, Detail: "the room on the disk is not known: " + f.FreeProblem}
	}
	detail := size(*f.Free) + " free"
	switch {
	case *f.Free < leastFree:
		return Row{Status: Fail, Detail: detail + ": starts are refused when the record cannot grow", Fix: "make room on the disk"}
	case *f.Free < enoughFree:
		return Row{Status: Warn, Detail: detail, Fix: "make room on the disk"}
	}
	return Row{Status: Pass, Detail: detail}
}

func openFiles(f Facts) Row {
	detail := fmt.Sprintf("%d file descriptors", f.OpenFiles)
	const fix = "ulimit -n 65536, or LimitNOFILE=65536 of the service"
	switch {
	case f.OpenFiles == 0:
		return Row{Status: Skip, Detail: "this system has no such limit"}
	case f.OpenFiles < leastFiles:
		return Row{Status: Fail, Detail: detail + ", which is not enough for a few commands at once", Fix: fix}
	case f.OpenFiles < enoughFiles:
		return Row{Status: Warn, Detail: detail + "; a connection and each running command take several", Fix: fix}
	}
	return Row{Status: Pass, Detail: detail}
}

func udpBuffers(f Facts) Row {
	if f.ReceiveBuffer == 0 || f.SendBuffer == 0 {
		return Row{Status: Skip, Detail: "the largest buffers of a socket are not known here"}
	}
	var low []string
	if f.ReceiveBuffer < enoughBuffers {
		low = append(low, fmt.Sprintf("net.core.rmem_max=%d", enoughBuffers))
	}
	if f.SendBuffer < enoughBuffers {
		low = append(low, fmt.Sprintf("net.core.wmem_max=%d", enoughBuffers))
	}
	detail := fmt.Sprintf("receive %s, send %s", size(uint64(max(f.ReceiveBuffer, 0))), size(uint64(max(f.SendBuffer, 0))))
	if len(low) > 0 {
		return Row{Status: Warn, Detail: detail + ": QUIC is slower than it could be", Fix: "sysctl -w " + strings.Join(low, " ")}
	}
	return Row{Status: Pass, Detail: detail}
}

func delegated(f Facts) Row {
	switch {
	case f.System != "linux":
		return Row{Status: Skip, Detail: "this system has no cgroups"}
	case f.Cgroup == "":
		return Row{
			Status: Skip, Detail: "none is delegated to this process; operations are bounded and ended without",
			Fix: "Delegate=yes in the service, or lend serve --cgroup DIRECTORY",
		}
	}
	return Row{Status: Pass, Detail: "delegated: " + f.Cgroup}
}

// size is a number of bytes for people.
func size(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}

// numberIn reads a small file that holds one number; 0 if it does not.
func numberIn(elem ...string) int64 {
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
