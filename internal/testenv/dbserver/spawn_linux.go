package dbserver

// Child processes that end with this one, also when it is killed, and ports that stay
// ours while a server is down.

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// spawner starts processes from one thread that lives as long as it does: the kernel
// ends a child when the thread that started it ends, and Go ends threads as it likes.
type spawner struct {
	work chan func()
	done chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range s.work {
			f()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// A group of its own keeps an interrupt typed at the terminal from the server.
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
	result := make(chan error)
	s.work <- func() { result <- cmd.Start() }
	return <-result
}

func (s *spawner) close() {
	close(s.work)
	<-s.done
}

// port is a free port of loopback, held by a socket that is bound and never listens.
// Linux gives it to nobody who asks for any port, and lets a server listen there that
// sets SO_REUSEADDR.
type port struct {
	number int
	file   *os.File
}

func reserve() (*port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("dbserver: a socket: %w", err)
	}
	p := &port{file: os.NewFile(uintptr(fd), "reserved port")}
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var name syscall.Sockaddr
	if err == nil {
		name, err = syscall.Getsockname(fd)
	}
	if err != nil {
		p.release()
		return nil, fmt.Errorf("dbserver: reserve a port: %w", err)
	}
	p.number = name.(*syscall.SockaddrInet4).Port
	return p, nil
}

func (p *port) release() { p.file.Close() }
