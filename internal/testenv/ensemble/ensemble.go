// Package ensemble starts real ZooKeeper servers for tests and benchmarks, and
// breaks them on request: kill, freeze, restart, cut off from the other servers
// while clients still reach them.
//
// One type, [Ensemble], uses one of two backends that behave alike: child processes that run the
// ZooKeeper of Debian's package, and Docker containers, which are only available in programs that
// import package integrationtest/docker. [Config.Backend] selects one.
package ensemble

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// StepTimeout bounds every fault and repair of one server: kill, start, pause,
// resume, cut off, heal.
const StepTimeout = 30 * time.Second

// ErrClosed is returned by every method of an Ensemble after Close.
var ErrClosed = errors.New("ensemble: closed")

// Config says what [Start] starts. The zero value is a single server with
// quick sessions.
type Config struct {
	// Servers is the number of servers: 1 (the default, a standalone server)
	// or more. Use an odd number.
	Servers int
	// TickTime is ZooKeeper's unit of time, 200 ms by default. A server keeps
	// session timeouts between 2 and 20 ticks.
	TickTime time.Duration
	// InitLimit is how many ticks a follower may take to connect to and sync
	// with its leader, 25 by default. A leader whose followers fail to come
	// waits that long before it calls another election.
	InitLimit int
	// SyncLimit is how many ticks a follower and its leader may be out of
	// touch before they part, 10 by default. A follower that is cut off goes
	// on serving reads for about that long.
	SyncLimit int
	// Properties are more lines of zoo.cfg, such as maxSessionTimeout, in
	// ZooKeeper's own units. They go before the lines that this package
	// writes, which win.
	Properties map[string]string
	// Backend says what runs the servers, Auto by default.
	Backend Backend
}

func (c Config) withDefaults() (Config, error) {
	if c.Servers == 0 {
		c.Servers = 1
	}
	if c.TickTime == 0 {
		c.TickTime = 200 * time.Millisecond
	}
	if c.InitLimit == 0 {
		c.InitLimit = 25
	}
	if c.SyncLimit == 0 {
		c.SyncLimit = 10
	}
	switch {
	case c.Servers < 1 || c.Servers > 9:
		return c, fmt.Errorf("ensemble: %d servers: want 1 to 9", c.Servers)
	case c.TickTime < time.Millisecond:
		return c, fmt.Errorf("ensemble: tick time %v: want 1ms or more", c.TickTime)
	case c.InitLimit < 1 || c.SyncLimit < 1:
		return c, fmt.Errorf("ensemble: limits of %d and %d ticks: want 1 or more", c.InitLimit, c.SyncLimit)
	}
	return c, nil
}

// Servers is a way of running the servers of one ensemble. The Ensemble makes one call at a time,
// never for a server that is in the wrong state, and never after Close.
type Servers interface {
	Kind() Backend
	// Ports returns the client port of every server on loopback, which does not change.
	Ports() []int
	// Start starts server i and does not wait until it is ready.
	Start(ctx context.Context, i int) error
	// Kill ends server i immediately, paused or not, and waits for its end.
	Kill(ctx context.Context, i int) error
	Pause(ctx context.Context, i int) error
	Resume(ctx context.Context, i int) error
	CutOff(ctx context.Context, i int) error
	Heal(ctx context.Context, i int) error
	// Exited reports whether server i has ended by itself. It may be called at any time
	// before Close.
	Exited(ctx context.Context, i int) bool
	// Log returns the last lines that server i has written.
	Log(ctx context.Context, i int) string
	// Close removes everything, even if the start has failed.
	Close() error
}

// Ensemble is a set of running ZooKeeper servers, counted from 0. Its methods
// may be called from several goroutines; faults and repairs happen one after
// another.
type Ensemble struct {
	cfg     Config
	backend Servers
	addrs   []string

	mu      sync.Mutex // held during a fault or repair
	servers []serverState
	closed  bool
}

type serverState struct{ running, paused, cut bool }

// Start starts the servers and returns when all of them serve clients. It
// blocks for 2 to 10 seconds, and for minutes where an image must be pulled or
// built first; ctx bounds it. On an error nothing is left behind.
func Start(ctx context.Context, cfg Config) (*Ensemble, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	// On systems where a port cannot be reserved another program may take it
	// in between; then a fresh set of ports is the cure.
	const attempts = 3
	for attempt := 1; ; attempt++ {
		e, err := startOnce(ctx, cfg)
		if err == nil {
			return e, nil
		}
		if attempt == attempts || !isPortTaken(err) || ctx.Err() != nil {
			return nil, err
		}
	}
}

func startOnce(ctx context.Context, cfg Config) (*Ensemble, error) {
	b, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	e := &Ensemble{cfg: cfg, backend: b, servers: make([]serverState, cfg.Servers)}
	for _, port := range b.Ports() {
		e.addrs = append(e.addrs, loopbackAddr(port))
	}
	err = e.startAll(ctx)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *Ensemble) startAll(ctx context.Context) error {
	for i := range e.servers {
		if err := e.backend.Start(ctx, i); err != nil {
			return fmt.Errorf("ensemble: start server %d: %w", i, err)
		}
		e.servers[i].running = true
	}
	return e.Ready(ctx)
}

// Backend says what runs the servers: Docker or Process.
func (e *Ensemble) Backend() Backend { return e.backend.Kind() }

// Servers is the number of servers, running or not.
func (e *Ensemble) Servers() int { return len(e.addrs) }

// Addrs gives the host:port of every server for clients. They stay the same
// over Kill and Start.
func (e *Ensemble) Addrs() []string { return slices.Clone(e.addrs) }

// Addr gives the host:port of server i for clients.
func (e *Ensemble) Addr(i int) string { return e.addrs[i] }

// Kill ends server i at once, as a crash would. Its data stay. Killing a
// server that does not run does nothing. It blocks until the server is gone,
// at most 30 seconds.
func (e *Ensemble) Kill(i int) error {
	return e.step("kill", i, func(ctx context.Context, s *serverState) error {
		return e.kill(ctx, i, s)
	})
}

func (e *Ensemble) kill(ctx context.Context, i int, s *serverState) error {
	if !s.running {
		return nil
	}
	if err := e.backend.Kill(ctx, i); err != nil {
		return err
	}
	s.running, s.paused = false, false
	return nil
}

// Start starts server i again, with the data it had, at the same address. It
// does not wait until the server serves clients: see [Ensemble.WaitReady].
// Starting a running server does nothing. It blocks for at most 30 seconds.
func (e *Ensemble) Start(i int) error {
	return e.step("start", i, func(ctx context.Context, s *serverState) error {
		return e.start(ctx, i, s)
	})
}

func (e *Ensemble) start(ctx context.Context, i int, s *serverState) error {
	if s.running {
		return nil
	}
	if err := e.backend.Start(ctx, i); err != nil {
		return err
	}
	s.running = true
	return nil
}

// Restart is Kill, then Start, with no other fault or repair in between.
func (e *Ensemble) Restart(i int) error {
	return e.step("restart", i, func(ctx context.Context, s *serverState) error {
		if err := e.kill(ctx, i, s); err != nil {
			return err
		}
		return e.start(ctx, i, s)
	})
}

// Pause freezes server i: its connections stay open and nothing moves on
// them. Pausing a paused server does nothing. It blocks for at most 30 seconds.
func (e *Ensemble) Pause(i int) error {
	return e.step("pause", i, func(ctx context.Context, s *serverState) error {
		if !s.running {
			return errors.New("it is not running")
		}
		if s.paused {
			return nil
		}
		if err := e.backend.Pause(ctx, i); err != nil {
			return err
		}
		s.paused = true
		return nil
	})
}

// Resume ends what Pause began. It does nothing for a server that is not
// paused. It blocks for at most 30 seconds.
func (e *Ensemble) Resume(i int) error {
	return e.step("resume", i, func(ctx context.Context, s *serverState) error {
		if !s.paused {
			return nil
		}
		if err := e.backend.Resume(ctx, i); err != nil {
			return err
		}
		s.paused = false
		return nil
	})
}

// CutOff makes a black hole of all links between server i and the other
// servers, in both directions. Clients still reach the server. The cut stays
// over Kill and Start, until Heal. It blocks for at most 30 seconds.
func (e *Ensemble) CutOff(i int) error {
	return e.step("cut off", i, func(ctx context.Context, s *serverState) error {
		if len(e.servers) == 1 {
			return errors.New("it has no other servers")
		}
		if s.cut {
			return nil
		}
		if err := e.backend.CutOff(ctx, i); err != nil {
			return err
		}
		s.cut = true
		return nil
	})
}

// Heal ends what CutOff began. It does nothing for a server that is not cut
// off. It blocks for at most 30 seconds, and does not wait until the server
// serves clients again: see [Ensemble.WaitReady].
func (e *Ensemble) Heal(i int) error {
	return e.step("heal", i, func(ctx context.Context, s *serverState) error {
		if !s.cut {
			return nil
		}
		if err := e.backend.Heal(ctx, i); err != nil {
			return err
		}
		s.cut = false
		return nil
	})
}

// step runs one fault or repair alone and within its time.
func (e *Ensemble) step(what string, i int, do func(context.Context, *serverState) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	if i < 0 || i >= len(e.servers) {
		return fmt.Errorf("ensemble: %s server %d: there are %d", what, i, len(e.servers))
	}
	ctx, cancel := context.WithTimeout(context.Background(), StepTimeout)
	defer cancel()
	if err := do(ctx, &e.servers[i]); err != nil {
		return fmt.Errorf("ensemble: %s server %d: %w", what, i, err)
	}
	return nil
}

// Log gives the last lines that server i has written, for a failing test to
// show. It blocks for at most 30 seconds.
func (e *Ensemble) Log(i int) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || i < 0 || i >= len(e.servers) {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), StepTimeout)
	defer cancel()
	return e.backend.Log(ctx, i)
}

// Close ends the servers and removes everything that was made for them:
// processes, containers, networks, files. Calling it again does nothing. It
// blocks for at most a minute.
func (e *Ensemble) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	if err := e.backend.Close(); err != nil {
		return fmt.Errorf("ensemble: close: %w", err)
	}
	return nil
}

func loopbackAddr(port int) string {
	return net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
}
