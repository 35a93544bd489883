//go:build failpoint && unix

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var hits atomic.Int64 //nolint:gochecknoglobals // test builds only

// Hit kills this process the nth time that it comes to the point that LEND_FAILPOINT
// names ("started" or "started:3"), and returns otherwise.
func Hit(point string) {
	name, nth, _ := strings.Cut(os.Getenv("LEND_FAILPOINT"), ":")
	n, err := strconv.ParseInt(nth, 10, 64)
	if err != nil {
		n = 1
	}
	if name != point || hits.Add(1) != n {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
