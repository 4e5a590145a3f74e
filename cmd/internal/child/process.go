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
	"syscall"
	"time"
)

const (
	startLimit = 10 * time.Second // for the guard to answer
	writeLimit = time.Second      // for a guard that does not read
	// backstop is how much longer than it should take a stop may take, before the parent
	// does the guard's work.
	backstop = 2 * time.Second
)

// Process is a program that was started. Its methods may be called from any goroutine.
type Process struct {
	cmd   *exec.Cmd // the guard
	pid   int       // of the program, and of its group
	grace time.Duration
	done  chan struct{}
	exit  Exit // when done is closed

	mu      sync.Mutex
	control *os.File
	stopped bool
	late    *time.Timer
}

// Start runs a program, and returns when it has been started. The error wraps
// [ErrNotFound] when there is none.
func Start(c Command) (*Process, error) {
	if len(c.Args) == 0 {
		return nil, errors.New("start: no program")
	}
	p, err := start(c)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Args[0], err)
	}
	return p, nil
}

func start(c Command) (*Process, error) {
	s := spec{Args: c.Args, Env: c.Env, Grace: c.Grace, LostGrace: c.LostGrace, Sweep: c.Sweep}
	if s.Env == nil {
		s.Env = os.Environ()
	}
	var until time.Time
	if c.Lease != nil {
		until = c.Lease()
		s.Leased, s.Lease = !until.IsZero(), newLease(until)
	}
	self, err := executable()
	if err != nil {
		return nil, err
	}
	orders, control, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer orders.Close()
	reports, answer, err := os.Pipe()
	if err != nil {
		control.Close()
		return nil, err
	}
	defer answer.Close()
	p := &Process{
		cmd: &exec.Cmd{
			Path: self, Args: []string{guardName}, Env: s.Env, ExtraFiles: []*os.File{orders, answer},
			SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		},
		grace: c.Grace, done: make(chan struct{}), control: control,
	}
	// A nil *os.File must not become an io.Writer.
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
	if err := p.begin(s, reports, decoder); err != nil {
		control.Close() // which ends the guard
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		reports.Close()
		return nil, err
	}
	go p.watch(reports, decoder, c, until)
	return p, nil
}

// begin hands the guard its task, and waits until it has started the program.
func (p *Process) begin(s spec, reports *os.File, decoder *json.Decoder) error {
	_ = p.control.SetWriteDeadline(time.Now().Add(startLimit))
	if err := json.NewEncoder(p.control).Encode(s); err != nil {
		return err
	}
	var r report
	_ = reports.SetReadDeadline(time.Now().Add(startLimit))
	if err := decoder.Decode(&r); err != nil {
		return fmt.Errorf("%w at its start: %w", ErrGuardDied, err)
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

// watch passes the lease on, and waits for the end.
func (p *Process) watch(reports *os.File, decoder *json.Decoder, c Command, until time.Time) {
	defer close(p.done)
	ended := make(chan struct{})
	var renewing sync.WaitGroup
	if c.Lease != nil {
		renewing.Go(func() { p.renew(c, until, ended) })
	}
	var r report
	if err := decoder.Decode(&r); err == nil && r.Exit != nil {
		p.exit = *r.Exit
	} else {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		p.exit = Exit{Code: 128 + int(syscall.SIGKILL), Stopped: true, Err: ErrGuardDied}
	}
	close(ended)
	renewing.Wait()
	reports.Close()
	_ = p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.late != nil {
		p.late.Stop()
	}
	p.control.Close()
	p.control = nil
}

// renew tells the guard of each extension of the lease.
func (p *Process) renew(c Command, told time.Time, ended <-chan struct{}) {
	tick := time.NewTicker(min(max(c.LostGrace/2, 10*time.Millisecond), 250*time.Millisecond))
	defer tick.Stop()
	for {
		if until := c.Lease(); !until.Equal(told) && !until.IsZero() {
			l := newLease(until)
			// A guard that does not read has the lease it has.
			if p.tell(order{Lease: &l}) == nil {
				told = until
			}
		}
		select {
		case <-tick.C:
		case <-ended:
			return
		}
	}
}

func (p *Process) tell(o order) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control == nil {
		return os.ErrProcessDone
	}
	_ = p.control.SetWriteDeadline(time.Now().Add(writeLimit))
	return json.NewEncoder(p.control).Encode(o)
}

// Signal sends a signal to the program, not to its group. After the program's end the
// error is os.ErrProcessDone.
func (p *Process) Signal(sig syscall.Signal) error { return p.tell(order{Signal: int(sig)}) }

// Stop has the group end: TERM, and after the grace KILL. It does not wait, and may be
// called repeatedly.
func (p *Process) Stop() {
	p.mu.Lock()
	first := !p.stopped && p.control != nil
	p.stopped = true
	if first {
		p.late = time.AfterFunc(p.grace+backstop, func() {
			_ = syscall.Kill(-p.pid, syscall.SIGKILL)
			_ = p.cmd.Process.Kill()
		})
	}
	p.mu.Unlock()
	if first {
		_ = p.tell(order{Stop: true}) // or else the timer does it
	}
}

// Done is closed when the program has ended, and, if it was stopped or is swept, the
// rest of its group.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for Done.
func (p *Process) Wait() Exit {
	<-p.done
	return p.exit
}

// Run runs a program to its end, and stops it when ctx is done. It returns when it has
// ended: nil after exit code 0 unless it was stopped, and otherwise an [ExitError], or
// the error of Start.
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
