package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/lendcli/lend/localhost/route"
)

// maxCommandLine is the longest command line of CreateProcess, in UTF-16 units, the
// final NUL included.
const maxCommandLine = 32767

// tree is the job object of one child; closing the job, or the end of this process,
// kills all of it.
type tree struct {
	mu      sync.Mutex // guards what follows
	job     windows.Handle
	pid     int
	console bool // whether the child can be sent CTRL_BREAK
}

// start starts the child suspended, so that nothing of it runs outside the job.
func (t *tree) start(cmd *exec.Cmd, own bool) error {
	if commandLine(cmd.Args) > maxCommandLine {
		return syscall.E2BIG
	}
	flags := uint32(windows.CREATE_SUSPENDED)
	if own {
		flags |= windows.CREATE_NEW_PROCESS_GROUP
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: flags, HideWindow: own}
	job, err := newJob()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, windows.CloseHandle(job))
	}
	if err := adopt(job, uint32(cmd.Process.Pid)); err != nil {
		_, _ = cmd.Process.Kill(), cmd.Wait() // it never ran
		return errors.Join(err, windows.CloseHandle(job))
	}
	t.job, t.pid, t.console = job, cmd.Process.Pid, own
	return nil
}

// commandLine is the length of what package syscall will make of args.
func commandLine(args []string) int {
	n := 0
	for _, a := range args {
		u, err := windows.UTF16FromString(syscall.EscapeArg(a))
		if err != nil {
			return maxCommandLine + 1
		}
		n += len(u) // a space instead of the NUL
	}
	return n
}

func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("create job: %w", err)
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		return 0, errors.Join(fmt.Errorf("limit job: %w", err), windows.CloseHandle(job))
	}
	return job, nil
}

func adopt(job windows.Handle, pid uint32) error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, pid)
	if err != nil {
		return fmt.Errorf("open process: %w", err)
	}
	defer func() { _ = windows.CloseHandle(process) }()
	if err := windows.AssignProcessToJobObject(job, process); err != nil {
		return fmt.Errorf("assign to job: %w", err)
	}
	return resume(pid)
}

// resume resumes the one thread of a suspended process.
func resume(pid uint32) error {
	threads, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	defer func() { _ = windows.CloseHandle(threads) }()
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(threads, &entry); err == nil; err = windows.Thread32Next(threads, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return fmt.Errorf("open thread: %w", err)
		}
		_, err = windows.ResumeThread(thread)
		return errors.Join(err, windows.CloseHandle(thread))
	}
	return fmt.Errorf("find thread: %w", err)
}

func (t *tree) exited() {}

// terminate sends CTRL_BREAK, which a program without a console does not get.
func (t *tree) terminate() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.job != 0 && t.console {
		_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(t.pid)) // Kill is the sure way
	}
	return nil
}

func (t *tree) kill() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.job == 0 {
		return nil
	}
	if err := windows.TerminateJobObject(t.job, 1); err != nil {
		return fmt.Errorf("terminate job: %w", err)
	}
	return nil
}

// close waits until no process of the job is active, and closes it.
func (t *tree) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.job == 0 {
		return nil
	}
	var err error
	deadline := time.Now().Add(closeBudget)
	for active(t.job) > 0 {
		if time.Now().After(deadline) {
			err = ErrSurvivors
			break
		}
		time.Sleep(time.Millisecond) // a job that is empty signals nothing that can be waited for here
	}
	err = errors.Join(err, windows.CloseHandle(t.job))
	t.job = 0
	return err
}

// accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION.
type accounting struct {
	times                               [4]int64
	pageFaults, total, active, finished uint32
}

func active(job windows.Handle) uint32 {
	const basicAccounting = 1
	var a accounting
	if err := windows.QueryInformationJobObject(job, basicAccounting, uintptr(unsafe.Pointer(&a)), uint32(unsafe.Sizeof(a)), nil); err != nil {
		return 0
	}
	return a.active
}

// describe maps the 32-bit codes of Windows (NTSTATUS among them) that have no place
// in 0 to 255 to 255, so that none of them looks like success.
func describe(e *route.Exit, s *os.ProcessState) {
	if e.Code = s.ExitCode(); e.Code < 0 || e.Code > 255 {
		e.Code = 255
	}
}

// Harden does nothing: on Windows a process that may open this one is trusted by
// its access token.
func Harden() error { return nil }

func holdInterrupts() (restore func()) {
	held := make(chan os.Signal, 1)
	signal.Notify(held, os.Interrupt)
	return func() { signal.Stop(held) }
}
