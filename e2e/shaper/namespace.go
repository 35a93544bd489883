//go:build linux

package shaper

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Device is the name of the device of a Link in both namespaces.
const Device = "lend0"

// IP runs the program ip.
func IP(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// AddNamespace makes a network namespace with loopback. The caller deletes it.
func AddNamespace(ctx context.Context, ns string) error {
	if err := IP(ctx, "netns", "add", ns); err != nil {
		return err
	}
	if err := IP(ctx, "-n", ns, "link", "set", "lo", "up"); err != nil {
		_ = DeleteNamespace(ctx, ns)
		return err
	}
	return nil
}

// DeleteNamespace takes the name of a namespace away; it goes with its last process.
func DeleteNamespace(ctx context.Context, ns string) error { return IP(ctx, "netns", "del", ns) }

// SetUp gives the device of a namespace an address with 24 bits of network.
func SetUp(ctx context.Context, ns, address string) error {
	if err := IP(ctx, "-n", ns, "address", "add", address+"/24", "dev", Device); err != nil {
		return err
	}
	return IP(ctx, "-n", ns, "link", "set", Device, "up", "txqueuelen", "1000")
}

// openDevice makes a TUN device in a namespace; it goes with the file.
func openDevice(ns string) (*os.File, error) {
	var fd int
	err := within(ns, func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		request, err := unix.NewIfreq(Device)
		if err == nil {
			request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		}
		if err != nil {
			_ = unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}

// within calls f on a thread that ends afterwards.
func within(ns string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread must not come back
		done <- func() error {
			fd, err := unix.Open("/run/netns/"+ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		}()
	}()
	return <-done
}
