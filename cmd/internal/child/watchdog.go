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
)

// Guard is what a guard does, which then does not return. In any other process it
// returns at once.
func Guard() {
	if len(os.Args) == 1 && os.Args[0] == guardName {
		guard()
		os.Exit(0)
	}
}

// guarded is the program of a guard. It belongs to the main goroutine.
type guarded struct {
	spec
	pid      int
	stopping bool
	termed   time.Time
	leaseEnd time.Time

	lost, kill *time.Timer
}

func guard() {
	// The kernel ends the program when the thread that has started it ends.
	runtime.LockOSThread()
	// Whoever signals all processes of a service leaves the decision to the parent.
	// Ignored they would be by the program, too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE)
	for fd := 3; fd <= 4; fd++ {
		syscall.CloseOnExec(fd)
	}
	decoder := json.NewDecoder(os.NewFile(3, "orders"))
	answer := json.NewEncoder(os.NewFile(4, "reports"))
	var g guarded
	if decoder.Decode(&g.spec) != nil {
		return // the parent has died
	}
	path, err := exec.LookPath(g.Args[0])
	if err == nil {
		adopt()
		var started *os.Process
		started, err = os.StartProcess(path, g.Args, &os.ProcAttr{
			Env: g.Env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attributes(),
		})
		if err == nil {
			g.pid = started.Pid
		}
	}
	if err != nil {
		_ = answer.Encode(report{
			Err:      err.Error(),
			NotFound: errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist),
		})
		return
	}
	orders := make(chan order)
	go func() { // until the process ends
		defer close(orders)
		for {
			var o order
			if decoder.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	_ = answer.Encode(report{Started: g.pid})
	exit := g.watch(orders)
	_ = answer.Encode(report{Exit: &exit})
}

func (g *guarded) watch(orders <-chan order) Exit {
	g.lost, g.kill = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	g.kill.Stop()
	g.lost.Stop()
	if g.Leased {
		g.extend(g.Lease)
	}
	ended, empty := make(chan syscall.WaitStatus, 1), make(chan struct{})
	go awaitEnd(g.pid, ended)
	var exit Exit
	for {
		select {
		case o, ok := <-orders:
			switch {
			case !ok:
				orders = nil
				g.stop()
			case o.Stop:
				g.stop()
			case o.Lease != nil:
				g.extend(*o.Lease)
			case o.Signal != 0 && ended != nil:
				_ = syscall.Kill(g.pid, syscall.Signal(o.Signal))
			}
		case <-g.lost.C:
			g.stop()
		case <-g.kill.C:
			g.signal(syscall.SIGKILL)
		case status := <-ended:
			ended = nil
			exit = g.exit(status)
			if !g.stopping && !g.Sweep {
				return exit
			}
			g.stop() // what is left
			go awaitGroup(g.pid, empty)
		case <-empty:
			return exit
		}
	}
}

func (g *guarded) signal(sig syscall.Signal) { _ = syscall.Kill(-g.pid, sig) }

// extend sets the lease, unless that before is over.
func (g *guarded) extend(l lease) {
	if !g.leaseEnd.IsZero() && !time.Now().Before(g.leaseEnd) {
		return
	}
	g.leaseEnd = l.end()
	g.lost.Reset(time.Until(g.leaseEnd))
	g.limit()
}

func (g *guarded) stop() {
	if g.stopping {
		return
	}
	g.stopping, g.termed = true, time.Now()
	if g.Grace > 0 {
		g.signal(syscall.SIGTERM)
		g.signal(syscall.SIGCONT) // one that is stopped hears nothing
	}
	g.limit()
}

// limit sets the time of KILL.
func (g *guarded) limit() {
	if !g.stopping {
		return
	}
	at := g.termed.Add(g.Grace)
	if !g.leaseEnd.IsZero() {
		last := g.leaseEnd
		if last.Before(g.termed) {
			last = g.termed
		}
		if last = last.Add(g.LostGrace); last.Before(at) {
			at = last
		}
	}
	g.kill.Reset(time.Until(at))
}

func (g *guarded) exit(status syscall.WaitStatus) Exit {
	exit := Exit{Code: status.ExitStatus(), Stopped: g.stopping}
	if status.Signaled() {
		exit.Code = 128 + int(status.Signal())
	}
	return exit
}
