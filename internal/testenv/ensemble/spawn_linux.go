package ensemble

// Child processes that cannot outlive this one, not even when it is killed.

import (
	"os/exec"
	"runtime"
	"syscall"
)

// spawner starts child processes from one operating system thread that lives
// as long as the spawner: the kernel ends a child when the thread that
// started it ends, and Go ends threads as it likes.
type spawner struct {
	work chan func()
	done chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		// Never unlocked: the thread ends with the goroutine and takes along
		// whatever children may be left.
		runtime.LockOSThread()
		for f := range s.work {
			f()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	// A group of its own keeps an interrupt typed at the terminal from the
	// servers: who started them decides when they end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	result := make(chan error)
	s.work <- func() { result <- cmd.Start() }
	return <-result
}

func (s *spawner) close() {
	close(s.work)
	<-s.done
}
