//go:build unix

// Package dbserver runs databases for tests, as child processes with separate data. The databases are those of
// Debian's packages postgresql, mariadb-server, redis-server, nats-server and etcd-server, together with the
// connection pooler pgbouncer. A test can kill a server and start the server again with its data. No server
// outlives the tests.
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

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// ErrMissing is the error of a function that starts a database that is not installed.
var ErrMissing = errors.New("dbserver: database is not installed")

// Server is one database server. Only one goroutine at a time may call its methods.
type Server struct {
	name string
	// dir contains all files of the server, and is the working directory of the server.
	dir  string
	port *testenv.Port
	// clusterPort is the port at which other servers of the cluster reach this server. It is nil for a server
	// without a cluster.
	clusterPort *testenv.Port
	// copyPort is the port at which the server receives data from another server of the cluster, or nil if the
	// server does not need such a port.
	copyPort *testenv.Port
	command  func() *exec.Cmd
	// ready returns nil if the server answers, and an error otherwise.
	ready func(ctx context.Context) error

	process *testenv.Process // nil while the server does not run
}

// newServer creates the directory of a server and reserves its port. Close removes the directory and releases the
// port.
func newServer(name string) (*Server, error) {
	dir, err := testenv.MakeDir("dbserver")
	if err != nil {
		return nil, fmt.Errorf("dbserver: create the directory of %s: %w", name, err)
	}
	s := &Server{name: name, dir: dir}
	if s.port, err = testenv.ReservePort(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Addr returns the host:port on which the server listens.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", s.Port()) }

// Port returns the port of Addr. It never changes.
func (s *Server) Port() string { return strconv.Itoa(s.port.Number) }

// Start starts the server with its data, and returns when it answers.
func (s *Server) Start() error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("dbserver: start %s: %w", s.name, err)
	}
	defer log.Close() // the child process has its own copy of the file
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	for {
		cmd := s.command()
		cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
		if s.process, err = testenv.StartProcess(cmd); err != nil {
			return fmt.Errorf("dbserver: start %s: %w", s.name, err)
		}
		// If a server was killed, its children may not have ended yet. A new server starts only after they have
		// ended.
		if s.waitReady(ctx) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("dbserver: %s does not answer; its log:\n%s", s.name, testenv.LastLinesOf(s.logFile()))
		}
	}
}

// waitReady waits until the server answers, and returns true. It returns false if the server ends or ctx is done
// first.
func (s *Server) waitReady(ctx context.Context) bool {
	for {
		if s.ready(ctx) == nil {
			return true
		}
		select {
		case <-s.process.Done():
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

// Kill kills the server and its children, and returns when they have ended.
func (s *Server) Kill() error {
	if s.process == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	// Pause the server first, because a paused server cannot start another child, which would continue to listen.
	_ = s.process.Pause() // returns an error if the server has ended
	children := childrenOf(s.process.Pid())
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err := s.process.Kill(ctx); err != nil {
		return fmt.Errorf("dbserver: kill %s: %w", s.name, err)
	}
	for _, pid := range children {
		for !hasEnded(pid) {
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("dbserver: kill process %d of %s: %w", pid, s.name, ctx.Err())
			}
		}
	}
	s.process = nil
	return nil
}

// hasEnded reports whether a process does not exist, or has ended and waits until its parent collects the exit
// status.
func hasEnded(pid int) bool { return strings.Contains("ZX", processState(pid)) }

// processState returns the state of a process as a letter: R, S, D, T, Z or X. It returns "" if
// the process does not exist.
func processState(pid int) string {
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

// Freeze suspends the processes of the server, and returns when none of their threads runs any more.
func (s *Server) Freeze() error {
	if err := s.process.Pause(); err != nil {
		return err
	}
	for _, pid := range childrenOf(s.process.Pid()) {
		if p, err := os.FindProcess(pid); err == nil {
			_ = testenv.PauseProcess(p) // returns an error if the child has ended
		}
	}
	return nil
}

// Thaw continues the processes that Freeze has suspended.
func (s *Server) Thaw() {
	for _, pid := range append(childrenOf(s.process.Pid()), s.process.Pid()) {
		if p, err := os.FindProcess(pid); err == nil {
			_ = testenv.ResumeProcess(p) // returns an error if the process has ended
		}
	}
}

// Close kills the server and deletes its data.
func (s *Server) Close() error {
	err := s.Kill()
	for _, p := range []*testenv.Port{s.port, s.clusterPort, s.copyPort} {
		if p != nil {
			p.Release()
		}
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "log") }

// childrenOf returns the children of a process. On systems other than Linux it returns none.
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

// Backup restarts the server, and returns a directory that contains the data from the time of the restart. Close
// removes this directory.
func (s *Server) Backup() (dir string, err error) {
	if err := s.Kill(); err != nil {
		return "", err
	}
	dir = filepath.Join(s.dir, "backup")
	if err := s.copyData(dir, s.dir); err != nil {
		return "", err
	}
	return dir, s.Start()
}

// Restore replaces the data of the server by a backup, and restarts the server.
func (s *Server) Restore(backup string) error {
	if err := s.Kill(); err != nil {
		return err
	}
	if err := s.copyData(s.dir, backup); err != nil {
		return err
	}
	return s.Start()
}

// copyData replaces the data in the directory to by the data in the directory from. Everything but the log and the
// backup is data.
func (s *Server) copyData(to, from string) error {
	script := `set -e; mkdir -p "$0"; cd "$1"
		for f in *; do case $f in log|backup) ;; *) rm -rf "$0/$f"; cp -a "$f" "$0/$f";; esac; done`
	if out, err := exec.Command("sh", "-c", script, to, from).CombinedOutput(); err != nil {
		return fmt.Errorf("dbserver: copy the data of %s: %w\n%s", s.name, err, out)
	}
	return nil
}
