//go:build unix

// Package dbserver runs databases for tests, as child processes on loopback, each with
// data of its own: what Debian's packages postgresql, redis-server and nats-server install.
// They can be killed and started again on what they have kept, and none outlives the tests.
package dbserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/pause"
	"github.com/go-leaderelection/leaderelection/internal/testenv/serverdir"
)

// ErrMissing: the database is not installed.
var ErrMissing = errors.New("dbserver: not installed")

// patience is how long a server may take to start or to stop on a machine that is busy.
const patience = time.Minute

// Server is one database. Its methods are called by one goroutine at a time.
type Server struct {
	name    string
	dir     string // everything of this server, and its working directory
	port    *port
	peers   *port // for the other servers of a cluster, if there are any
	spawner *spawner
	command func() *exec.Cmd
	ready   func(ctx context.Context) error

	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended and was waited for
}

// newServer reserves what every server needs. Close gives it back.
func newServer(name string) (*Server, error) {
	dir, err := serverdir.Make("dbserver")
	if err != nil {
		return nil, fmt.Errorf("dbserver: %w", err)
	}
	s := &Server{name: name, dir: dir, spawner: newSpawner()}
	if s.port, err = reserve(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Addr is where the server listens, as host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", s.Port()) }

// Port is the port in Addr. It stays the same.
func (s *Server) Port() string { return strconv.Itoa(s.port.number) }

// Start starts the server on the data it has, and returns when it answers.
func (s *Server) Start() error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("dbserver: %w", err)
	}
	defer log.Close() // the child has its own
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		s.cmd = s.command()
		s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.dir, log, log
		if err := s.spawner.start(s.cmd); err != nil {
			return fmt.Errorf("dbserver: start %s: %w", s.name, err)
		}
		done := make(chan struct{})
		s.done = done
		go func(cmd *exec.Cmd) {
			defer close(done)
			_ = cmd.Wait() // how it ended does not matter
		}(s.cmd)
		// A server that was killed may have left children that are still about to go,
		// and refuses to start until then.
		if s.answers(ctx) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("dbserver: %s does not answer; it says:\n%s", s.name, s.log())
		}
	}
}

// answers waits until the server serves, and is false when it has ended instead.
func (s *Server) answers(ctx context.Context) bool {
	for {
		if s.ready(ctx) == nil {
			return true
		}
		select {
		case <-s.done:
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
		return false
	}
}

// Kill ends the server and its children by SIGKILL, and returns when they are gone.
func (s *Server) Kill() error {
	if s.cmd == nil {
		return nil
	}
	// Stopped it can make no child that would be overlooked, and that goes on listening.
	_ = pause.Stop(s.cmd.Process) // or it has ended already
	children := childrenOf(s.cmd.Process.Pid)
	_ = s.cmd.Process.Kill()
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	limit := time.After(patience)
	select {
	case <-s.done:
	case <-limit:
		return fmt.Errorf("dbserver: %s does not end", s.name)
	}
	for _, pid := range children {
		for !ended(pid) {
			select {
			case <-time.After(time.Millisecond):
			case <-limit:
				return fmt.Errorf("dbserver: process %d of %s does not end", pid, s.name)
			}
		}
	}
	s.cmd = nil
	return nil
}

// ended tells whether a process is gone, or waits only for somebody to take its exit code.
func ended(pid int) bool { return strings.Contains("ZX", state(pid)) }

// state is a process's, as the system writes it: R, S, D, T, Z, X; empty if it is gone.
func state(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, s, _ := strings.Cut(string(stat), ") ")
	return s[:min(len(s), 1)]
}

// Restart kills the server and starts it again.
func (s *Server) Restart() error {
	if err := s.Kill(); err != nil {
		return err
	}
	return s.Start()
}

// Freeze stops the server and its children, and returns when none of their threads runs any
// more. Thaw lets them run again.
func (s *Server) Freeze() error {
	if err := pause.Stop(s.cmd.Process); err != nil {
		return err
	}
	for _, pid := range childrenOf(s.cmd.Process.Pid) {
		if p, err := os.FindProcess(pid); err == nil {
			_ = pause.Stop(p) // or it has ended
		}
	}
	return nil
}

// Thaw lets a server run again that Freeze has stopped.
func (s *Server) Thaw() {
	for _, pid := range append(childrenOf(s.cmd.Process.Pid), s.cmd.Process.Pid) {
		if p, err := os.FindProcess(pid); err == nil {
			_ = pause.Continue(p) // or it has ended
		}
	}
}

// Close ends the server and deletes its data.
func (s *Server) Close() error {
	err := s.Kill()
	s.spawner.close()
	for _, p := range []*port{s.port, s.peers} {
		if p != nil {
			p.release()
		}
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "log") }

func (s *Server) log() string {
	text, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// childrenOf are the children of a process, where the system tells.
func childrenOf(pid int) []int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	var pids []int
	for _, word := range strings.Fields(string(text)) {
		if child, err := strconv.Atoi(word); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}
