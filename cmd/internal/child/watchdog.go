//go:build unix

package child

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// RunWatchdog runs a watchdog if Start has started this process as a watchdog, and then exits. In any other process
// it returns immediately.
func RunWatchdog() {
	if len(os.Args) == 1 && os.Args[0] == watchdogName {
		runWatchdog()
		os.Exit(0)
	}
}

// watchdog is the state of a watchdog process. Only its main goroutine uses it.
type watchdog struct {
	task     task
	pid      int       // the ID of the program, and of its group
	stopping bool      // whether stopGroup was called
	stopTime time.Time // the time at which stopGroup was called
	leaseEnd time.Time // the end of the lease; zero if there is no lease

	leaseTimer, killTimer *time.Timer
	leaseTick             <-chan time.Time // fires when the lease must be checked again; nil if there is no lease
	now                   func() time.Time // time.Now, except in tests
}

func runWatchdog() {
	// Stay on this thread, because on Linux the program receives its Pdeathsig when the thread that has
	// started it exits.
	runtime.LockOSThread()
	// Handle these signals without any action: if all processes of a service receive a signal, the parent decides how
	// to react. Do not ignore the signals, because the program would inherit that. The program inherits only what was
	// ignored when the parent started, for example HUP by nohup.
	for _, sig := range []os.Signal{
		syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE,
	} {
		if !signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	for fd := 3; fd <= 4; fd++ {
		syscall.CloseOnExec(fd)
	}
	decoder := json.NewDecoder(os.NewFile(3, "instructions"))
	encoder := json.NewEncoder(os.NewFile(4, "reports"))
	w := watchdog{now: time.Now}
	if decoder.Decode(&w.task) != nil {
		return // the parent has died
	}
	if err := w.startProgram(); err != nil {
		_ = encoder.Encode(report{
			Err:      err.Error(),
			NotFound: errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist),
		})
		return
	}
	instructions := make(chan instruction)
	go func() { // this goroutine runs until the process exits
		defer close(instructions)
		for {
			var i instruction
			if decoder.Decode(&i) != nil {
				return
			}
			instructions <- i
		}
	}()
	_ = encoder.Encode(report{Started: w.pid})
	exited := make(chan syscall.WaitStatus, 1)
	go reapChildren(w.pid, exited) // runs until there are no children, or the process exits
	exit := w.superviseGroup(instructions, exited)
	_ = encoder.Encode(report{Exit: &exit})
}

func (w *watchdog) startProgram() error {
	var args []string
	for _, arg := range w.task.Args {
		args = append(args, string(arg))
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	becomeSubreaper()
	program, err := os.StartProcess(path, args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: programAttributes(),
	})
	if err == nil {
		w.pid = program.Pid
	}
	return err
}

// superviseGroup executes instructions and enforces the limits of the task. exited receives the status of the
// program. superviseGroup returns when the program has exited, and, if the group was stopped or the task requires a
// sweep, when the other processes of the group have exited as well.
func (w *watchdog) superviseGroup(instructions <-chan instruction, exited <-chan syscall.WaitStatus) Exit {
	w.leaseTimer, w.killTimer = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	w.killTimer.Stop()
	w.leaseTimer.Stop()
	if w.task.Leased {
		w.extendLease(w.task.Lease)
	}
	empty := make(chan struct{})
	var exit Exit
	for {
		select {
		case i, open := <-instructions:
			switch {
			case !open: // the parent has died
				instructions = nil
				w.stopGroup()
			case i.Stop:
				w.stopGroup()
			case i.Lease != nil:
				w.extendLease(*i.Lease)
			case i.Signal != 0 && exited != nil:
				_ = syscall.Kill(w.pid, syscall.Signal(i.Signal))
			}
		case <-w.leaseTick:
			w.setTimers()
		case <-w.leaseTimer.C:
			w.stopGroup()
		case <-w.killTimer.C:
			w.signalGroup(syscall.SIGKILL)
		case status := <-exited:
			exited = nil
			exit = w.exitOf(status)
			if !w.stopping && !w.task.Sweep {
				return exit
			}
			w.stopGroup() // the program has exited: stop the other processes of its group
			go waitForGroup(w.pid, empty)
		case <-empty:
			return exit
		}
	}
}

// reapChildren reaps all children, and sends the status of the program after it has exited. On Linux the
// children include the orphans that the program has left behind. It returns when there are no children.
func reapChildren(program int, exited chan<- syscall.WaitStatus) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case pid == program:
			exited <- status
		case err != nil && !errors.Is(err, syscall.EINTR):
			return
		}
	}
}

func (w *watchdog) signalGroup(sig syscall.Signal) { _ = syscall.Kill(-w.pid, sig) }

// extendLease sets the deadline of the lease. If the lease has expired, extendLease does nothing.
func (w *watchdog) extendLease(l lease) {
	switch {
	case w.leaseEnd.IsZero():
		w.leaseTick = time.Tick(w.task.checkInterval())
	case limit.Expired(w.leaseEnd, w.now()):
		return
	}
	w.leaseEnd = l.deadline()
	w.setTimers()
}

func (w *watchdog) stopGroup() {
	if w.stopping {
		return
	}
	w.stopping, w.stopTime = true, w.now()
	if w.task.Grace > 0 {
		w.signalGroup(syscall.SIGTERM)
		w.signalGroup(syscall.SIGCONT) // continue suspended processes, which cannot handle TERM
	}
	w.setTimers()
}

// setTimers sets the timer that fires when the lease expires, if there is a lease, and the timer that fires when the
// group receives KILL, if stopGroup was called.
func (w *watchdog) setTimers() {
	now := w.now()
	if !w.leaseEnd.IsZero() {
		w.leaseTimer.Reset(limit.Left(w.leaseEnd, now))
	}
	if w.stopping {
		w.killTimer.Reset(w.task.untilKill(w.stopTime, w.leaseEnd, now))
	}
}

// exitOf returns how the program has exited. As in a shell, the exit code of a program that a signal has ended is 128
// plus the number of the signal.
func (w *watchdog) exitOf(status syscall.WaitStatus) Exit {
	exit := Exit{Code: status.ExitStatus(), Stopped: w.stopping}
	if status.Signaled() {
		exit.Code = 128 + int(status.Signal())
	}
	return exit
}
