package main

import (
	"os"
	"sync"
	"syscall"

	"github.com/go-leaderelection/leaderelection/cmd/internal/child"
)

// program is the program that the command run starts during each leadership.
type program struct {
	args []string // the program and its arguments; empty if there is no program

	mu       sync.Mutex
	process  *child.Process   // nil if the program does not run
	starting bool             // whether the program is being started; it may already run
	pending  []syscall.Signal // signals that were received while the program was being started
	code     *int             // the exit code, if the program has exited by itself during a leadership
}

// startProcess starts the program, and sends it the signals that this process has received during the start.
func (p *program) startProcess(c child.Command) (*child.Process, error) {
	p.mu.Lock()
	p.starting = true
	p.mu.Unlock()
	process, err := child.Start(c)
	p.mu.Lock()
	pending := p.pending
	p.process, p.starting, p.pending = process, false, nil
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for _, sig := range pending {
		_ = process.Signal(sig) // ignore the error: the program has exited
	}
	return process, nil
}

// waitProcess waits until the program has exited, and returns how it has exited.
func (p *program) waitProcess(process *child.Process) child.Exit {
	exit := process.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process = nil
	return exit
}

// forwardSignal sends a signal to the program, if it is running.
func (p *program) forwardSignal(s os.Signal) {
	sig, _ := s.(syscall.Signal)
	p.mu.Lock()
	process := p.process
	if p.starting {
		p.pending = append(p.pending, sig)
	}
	p.mu.Unlock()
	if process != nil {
		_ = process.Signal(sig) // ignore the error: the program has exited
	}
}

func (p *program) isRunning() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process != nil
}

// setExitCode records that the program has exited by itself during a leadership.
func (p *program) setExitCode(code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.code = &code
}

// exitCode returns the exit code of the program if it has exited by itself during a leadership.
func (p *program) exitCode() (code int, exited bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.code == nil {
		return 0, false
	}
	return *p.code, true
}
