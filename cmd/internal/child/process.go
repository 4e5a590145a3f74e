//go:build unix

package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// startLimit is the maximum time that the watchdog may take to start the program.
	startLimit = 10 * time.Second
	// writeLimit is the maximum time that the parent waits until the watchdog accepts an instruction.
	writeLimit = time.Second
	// stopMargin is the time after the grace in which the watchdog must have stopped the group. When it has elapsed,
	// the parent kills the group, and after another stopMargin the watchdog. After the lost grace, the margin is the
	// lost grace divided by lostMargin. With the defaults of elector, that margin ends before another candidate is
	// elected.
	stopMargin = 2 * time.Second
	lostMargin = 8
)

// Process is a program that [Start] has started. Its methods may be called from any goroutine.
type Process struct {
	command Command
	cmd     *exec.Cmd   // the process of the watchdog
	pid     int         // the ID of the program, and of its group
	stopped atomic.Bool // whether Stop was called
	done    chan struct{}
	exit    Exit // valid after done is closed

	mu      sync.Mutex
	control *os.File // the pipe for instructions; nil after the program has exited
}

// Start starts a program, and returns after the program has started. The error wraps [ErrNotFound] if
// the program does not exist.
func Start(c Command) (*Process, error) {
	if len(c.Args) == 0 {
		return nil, errors.New("start: Args contains no program")
	}
	p, err := withReserve(func() (*Process, error) { return startProcess(c) })
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Args[0], err)
	}
	return p, nil
}

func startProcess(c Command) (*Process, error) {
	t := task{limits: limits{c.Grace, c.LostGrace}, Sweep: c.Sweep}
	for _, arg := range c.Args {
		t.Args = append(t.Args, []byte(arg))
	}
	var deadline time.Time
	if c.Lease != nil {
		deadline = c.Lease()
		t.Leased, t.Lease = !deadline.IsZero(), newLease(deadline)
	}
	self, err := ownExecutable()
	if err != nil {
		return nil, err
	}
	instructions, control, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer instructions.Close()
	reports, reportWriter, err := os.Pipe()
	if err != nil {
		control.Close()
		return nil, err
	}
	defer reportWriter.Close()
	p := &Process{
		cmd: &exec.Cmd{
			Path: self, Args: []string{watchdogName}, Env: c.Env, ExtraFiles: []*os.File{instructions, reportWriter},
			SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		},
		command: c, done: make(chan struct{}), control: control,
	}
	// Assign only files that are not nil, because an io.Reader or io.Writer that contains a nil
	// *os.File is not nil.
	if c.Stdin != nil {
		p.cmd.Stdin = c.Stdin
	}
	if c.Stdout != nil {
		p.cmd.Stdout = c.Stdout
	}
	if c.Stderr != nil {
		p.cmd.Stderr = c.Stderr
	}
	if err := p.cmd.Start(); err != nil {
		control.Close()
		reports.Close()
		return nil, err
	}
	decoder := json.NewDecoder(reports)
	if err := p.sendTask(t, reports, decoder); err != nil {
		control.Close() // closing control makes the watchdog stop the program, if the program has started
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		reports.Close()
		return nil, err
	}
	go p.superviseWatchdog(reports, decoder, c, deadline)
	return p, nil
}

// sendTask sends the task to the watchdog, and waits until the program has started.
func (p *Process) sendTask(t task, reports *os.File, decoder *json.Decoder) error {
	_ = p.control.SetWriteDeadline(time.Now().Add(startLimit))
	if err := json.NewEncoder(p.control).Encode(t); err != nil {
		return err
	}
	var r report
	_ = reports.SetReadDeadline(time.Now().Add(startLimit))
	if err := decoder.Decode(&r); err != nil {
		return fmt.Errorf("%w before it started the program: %w", ErrWatchdogDied, err)
	}
	_ = reports.SetReadDeadline(time.Time{})
	switch {
	case r.NotFound:
		return ErrNotFound
	case r.Err != "":
		return errors.New(r.Err)
	}
	p.pid = r.Started
	return nil
}

// superviseWatchdog extends the lease until the watchdog reports the exit of the program, or until the watchdog dies,
// in which case superviseWatchdog kills the group.
func (p *Process) superviseWatchdog(reports *os.File, decoder *json.Decoder, c Command, deadline time.Time) {
	exited := make(chan struct{})
	var renewing sync.WaitGroup
	if c.Lease != nil {
		renewing.Go(func() { p.renewLease(c, deadline, exited) })
	}
	var r report
	if err := decoder.Decode(&r); err == nil && r.Exit != nil {
		p.exit = *r.Exit
	} else {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		p.exit = Exit{Code: 128 + int(syscall.SIGKILL), Stopped: true, Err: ErrWatchdogDied}
	}
	close(exited)
	renewing.Wait()
	reports.Close()
	_ = p.cmd.Wait()
	p.mu.Lock()
	p.control.Close()
	p.control = nil
	p.mu.Unlock()
	// Reserve the file descriptors again before done is closed, because the caller may then start the next process.
	completed := tryCompleteReserve()
	close(p.done)
	if !completed {
		completeReserve()
	}
}

// renewLease sends each new deadline of the lease to the watchdog until the program has exited. sent is the deadline
// that the watchdog has received with its task.
func (p *Process) renewLease(c Command, sent time.Time, exited <-chan struct{}) {
	tick := time.NewTicker(limits{c.Grace, c.LostGrace}.checkInterval())
	defer tick.Stop()
	for {
		if deadline := c.Lease(); !deadline.Equal(sent) && !deadline.IsZero() {
			l := newLease(deadline)
			// If the watchdog does not read the instruction, try again with the next tick.
			if p.sendInstruction(instruction{Lease: &l}) == nil {
				sent = deadline
			}
		}
		select {
		case <-tick.C:
		case <-exited:
			return
		}
	}
}

func (p *Process) sendInstruction(i instruction) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control == nil {
		return os.ErrProcessDone
	}
	_ = p.control.SetWriteDeadline(time.Now().Add(writeLimit))
	return json.NewEncoder(p.control).Encode(i)
}

// Signal sends a signal to the program, but not to the other processes of its group. After the program has exited
// it returns os.ErrProcessDone.
func (p *Process) Signal(sig syscall.Signal) error {
	return p.sendInstruction(instruction{Signal: int(sig)})
}

// Stop stops the group with TERM, and with KILL after the grace. Stop does not wait for the exit, and may be called
// repeatedly.
func (p *Process) Stop() {
	if p.stopped.Swap(true) {
		return
	}
	go p.enforceStop(time.Now())
	_ = p.sendInstruction(instruction{Stop: true}) // ignore the error, because enforceStop stops the group in any case
}

// enforceStop kills the group if the watchdog does not stop the group in time, and then kills the watchdog if it does
// not report the exit: a watchdog that is merely late reports the exit. enforceStop reads the lease periodically,
// because the lease may be extended, and the machine may be suspended.
func (p *Process) enforceStop(stopTime time.Time) {
	late := limits{p.command.Grace + stopMargin, p.command.LostGrace + p.command.LostGrace/lostMargin}
	for {
		now, wait := time.Now(), late.Grace
		var leaseEnd time.Time
		if p.command.Lease != nil {
			leaseEnd, wait = p.command.Lease(), late.checkInterval()
		}
		left := late.untilKill(stopTime, leaseEnd, now)
		select {
		case <-p.done:
			return
		default:
		}
		if left <= 0 {
			break
		}
		select {
		case <-p.done:
			return
		case <-time.After(min(wait, left)):
		}
	}
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	select {
	case <-p.done:
	case <-time.After(stopMargin):
		_ = p.cmd.Process.Kill()
	}
}

// Done returns a channel that is closed when the program has exited. If Stop was called, the lease has expired or
// Command.Sweep is set, the channel is closed when all processes of the group have exited.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the channel of Done is closed, and returns how the program has exited.
func (p *Process) Wait() Exit {
	<-p.done
	return p.exit
}

// Run runs a program until the program exits, and stops the program if ctx is done. Run returns nil after exit code 0
// if ctx was not done, an error of [Start], or an error that wraps [ExitError].
func Run(ctx context.Context, c Command) error {
	p, err := Start(c)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		p.Stop()
	case <-p.Done():
	}
	if exit := p.Wait(); exit.Err != nil || exit.Stopped || exit.Code != 0 {
		return fmt.Errorf("%s: %w", c.Args[0], &ExitError{exit})
	}
	return nil
}
