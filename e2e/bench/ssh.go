//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

const sshdPath = "/usr/sbin/sshd"

// sshd is an OpenSSH server on loopback with keys of its own. It runs in a mount
// namespace, so that nothing outside of dir is written and the shell that it starts
// reads no start-up file.
type sshd struct {
	dir    string
	port   int
	bin    string
	server *exec.Cmd
	master *exec.Cmd
}

// startSSH starts the server and a master connection for the command line.
func startSSH(ctx context.Context, dir, bin string) (_ *sshd, err error) {
	if _, err := os.Stat(sshdPath); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("sshd needs root")
	}
	s := &sshd{dir: dir, bin: bin}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if err := s.configure(ctx); err != nil {
		return nil, err
	}
	s.server = exec.CommandContext(ctx, "/proc/self/exe", "-role", "sshd", "-dir", dir)
	s.server.Stderr = os.Stderr
	s.server.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if err := s.server.Start(); err != nil {
		return nil, err
	}
	if err := s.until(func() error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", s.address())
		if err == nil {
			err = c.Close()
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("start sshd: %w", err)
	}
	line := s.line("cold", "-M", "-N", "-S", s.file("master"))
	s.master = exec.CommandContext(ctx, line[0], line[1:]...)
	if err := s.master.Start(); err != nil {
		return nil, err
	}
	if err := s.until(func() error { _, err := os.Stat(s.file("master")); return err }); err != nil {
		return nil, fmt.Errorf("start the master of ssh: %w", err)
	}
	return s, nil
}

func (s *sshd) file(name string) string { return filepath.Join(s.dir, name) }
func (s *sshd) address() string         { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *sshd) until(ok func() error) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := ok()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-time.After(20 * time.Millisecond)
	}
}

// configure makes keys and the files of both ends.
func (s *sshd) configure(ctx context.Context) error {
	for _, key := range []string{"host", "user"} {
		cmd := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.file(key))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return err
	}
	user, err1 := os.ReadFile(s.file("user.pub"))
	machine, err2 := os.ReadFile(s.file("host.pub"))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	files := map[string]string{
		"authorized_keys": string(user),
		"known_hosts":     fmt.Sprintf("[127.0.0.1]:%d %s", s.port, machine),
		"sshd_config": fmt.Sprintf("Port %d\nListenAddress 127.0.0.1\nHostKey %s\nPidFile %s\nAuthorizedKeysFile %s\n", s.port,
			s.file("host"), s.file("pid"), s.file("authorized_keys")) +
			"UsePAM no\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n" +
			"UseDNS no\nPrintMotd no\nPrintLastLog no\nMaxStartups 4000\nMaxSessions 4000\nLogLevel FATAL\n",
		"ssh_config": fmt.Sprintf("Host cold warm\n HostName 127.0.0.1\n Port %d\n User root\n IdentitiesOnly yes\n IdentityFile %s\n"+
			" UserKnownHostsFile %s\n GlobalKnownHostsFile /dev/null\n StrictHostKeyChecking yes\n BatchMode yes\n LogLevel ERROR\n"+
			" Ciphers aes128-gcm@openssh.com\nHost warm\n ControlPath %s\n ControlMaster no\n",
			s.port, s.file("user"), s.file("known_hosts"), s.file("master")),
	}
	for name, text := range files {
		if err := os.WriteFile(s.file(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// becomeSSHD is the process that turns into the server, in its own mount namespace.
func becomeSSHD(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	if err := os.Mkdir("/run/sshd", 0o755); err != nil { //nolint:gosec // sshd wants it so
		return err
	}
	if home, err := os.UserHomeDir(); err == nil {
		rc := filepath.Join(home, ".bashrc")
		if _, err := os.Stat(rc); err == nil {
			if err := unix.Mount("/dev/null", rc, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("hide %s: %w", rc, err)
			}
		}
	}
	return unix.Exec(sshdPath, []string{sshdPath, "-D", "-e", "-f", filepath.Join(dir, "sshd_config")}, os.Environ())
}

// line is the command line of a client; cold makes a connection of its own.
func (s *sshd) line(host string, options ...string) []string {
	return append(append([]string{"ssh", "-F", s.file("ssh_config")}, options...), host)
}

// remote is what the shell at the other end is told to become.
func (s *sshd) remote(command []string) string {
	return "exec " + strings.Join(program(s.bin, command), " ")
}

func (s *sshd) commandLine(host string, options ...string) way {
	return processes(func(command []string) []string { return append(s.line(host, options...), s.remote(command)) })
}

// client is the Go client on one warm connection.
func (s *sshd) client() (way, func(), error) {
	secret, err1 := os.ReadFile(s.file("user"))
	machine, err2 := os.ReadFile(s.file("host.pub"))
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, err
	}
	signer, err := ssh.ParsePrivateKey(secret)
	if err != nil {
		return nil, nil, err
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(machine)
	if err != nil {
		return nil, nil, err
	}
	config := &ssh.ClientConfig{User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.FixedHostKey(key)}
	config.Ciphers = []string{"aes128-gcm@openssh.com"}
	c, err := ssh.Dial("tcp", s.address(), config)
	if err != nil {
		return nil, nil, err
	}
	run := func(_ context.Context, command []string, stdin io.Reader, stdout io.Writer) error {
		session, err := c.NewSession()
		if err != nil {
			return err
		}
		defer func() { _ = session.Close() }()
		session.Stdin, session.Stdout, session.Stderr = stdin, stdout, &counter{}
		return session.Run(s.remote(command))
	}
	return run, func() { _ = c.Close() }, nil
}

func (s *sshd) stop() {
	for _, cmd := range []*exec.Cmd{s.master, s.server} {
		if cmd != nil && cmd.Process != nil {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}
	}
}
