// Package ensemble runs Apache ZooKeeper servers for tests and benchmarks. It can kill, pause and
// restart them, and partition a server from the others while clients still reach it.
//
// [Ensemble] uses one of two backends that behave alike: child processes that run the ZooKeeper
// of Debian's package, and Docker containers, which are only available in programs that import
// package integrationtest/docker. [Config.Backend] selects one.
package ensemble

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// StepTimeout is the time limit of each fault and repair of one server: kill, start, pause,
// resume, cut off, heal.
const StepTimeout = 30 * time.Second

// ErrClosed is the error of every method of an Ensemble after Close.
var ErrClosed = errors.New("ensemble: the servers were closed")

// Config configures [Start]. The zero value is a single server with short sessions.
type Config struct {
	// Servers is the number of servers, 1 to 9. It should be odd. The default is 1, a
	// standalone server.
	Servers int
	// TickTime is ZooKeeper's unit of time. A server limits session timeouts to 2 to 20 ticks.
	// The default is 200 ms.
	TickTime time.Duration
	// InitLimit is the number of ticks in which a follower must connect to its leader and synchronize with the
	// leader. A leader without enough followers waits that long before it starts another election. The default is
	// 25.
	InitLimit int
	// SyncLimit is the number of ticks after which a follower and its leader close their connection if they receive
	// nothing from each other. A follower that is cut off serves reads for about as long. The default is 10.
	SyncLimit int
	// Properties are additional lines of zoo.cfg, such as maxSessionTimeout, in ZooKeeper's
	// units. The lines of this package override them.
	Properties map[string]string
	// JavaFlags are flags of Java in addition to the variable JavaFlags, for settings that zoo.cfg does not
	// contain.
	JavaFlags []string
	// Backend selects what runs the servers. The default is Auto.
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
		return c, fmt.Errorf("ensemble: Servers is %d: want 1 to 9", c.Servers)
	case c.TickTime < time.Millisecond:
		return c, fmt.Errorf("ensemble: TickTime is %v: want 1ms or more", c.TickTime)
	case c.InitLimit < 1 || c.SyncLimit < 1:
		return c, fmt.Errorf("ensemble: InitLimit is %d and SyncLimit is %d ticks: want 1 or more", c.InitLimit, c.SyncLimit)
	}
	return c, nil
}

// Servers runs the servers of one ensemble; each backend implements this interface. The Ensemble makes one call at a
// time, no call that the state of the server does not permit, such as a resume of a server that is not paused, and no
// call after Close.
type Servers interface {
	Kind() Backend
	// Ports returns the client port of every server on the loopback interface. The ports do not change.
	Ports() []int
	// Start starts server i and does not wait until it is ready.
	Start(ctx context.Context, i int) error
	// Kill kills server i, paused or not, and waits until it has ended.
	Kill(ctx context.Context, i int) error
	Pause(ctx context.Context, i int) error
	Resume(ctx context.Context, i int) error
	CutOff(ctx context.Context, i int) error
	Heal(ctx context.Context, i int) error
	// Exited reports whether server i has ended. The Ensemble may call Exited at any time before Close.
	Exited(ctx context.Context, i int) bool
	// Log returns the last lines of the log of server i.
	Log(ctx context.Context, i int) string
	// Close stops the servers and removes their files, even if Start has failed.
	Close() error
}

// Ensemble is a set of ZooKeeper servers, numbered from 0. Its methods may be called from any
// goroutine. It injects one fault or repair at a time.
type Ensemble struct {
	cfg     Config
	backend Servers
	addrs   []string

	mu      sync.Mutex // held while a fault or a repair runs
	servers []serverState
	closed  bool
}

type serverState struct{ running, paused, cut bool }

// Start starts the servers and returns when all of them serve clients. Start takes 2 to 10 seconds, or minutes if
// an image must be pulled or built first. If Start returns an error, no server runs any more.
func Start(ctx context.Context, cfg Config) (*Ensemble, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	// If the system cannot reserve ports, another program may use one of the ports. Then try again with other
	// ports.
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
	b, err := openBackend(ctx, cfg)
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

// Backend returns the backend that runs the servers: Docker or Process.
func (e *Ensemble) Backend() Backend { return e.backend.Kind() }

// Servers returns the number of servers, running or not.
func (e *Ensemble) Servers() int { return len(e.addrs) }

// Addrs returns the host:port of each server for clients. Kill and Start do not change them.
func (e *Ensemble) Addrs() []string { return slices.Clone(e.addrs) }

// Addr returns the host:port of server i for clients.
func (e *Ensemble) Addr(i int) string { return e.addrs[i] }

// Kill kills server i, which keeps its data. It does nothing if the server is not running. It
// blocks until the server has ended, for at most 30 seconds.
func (e *Ensemble) Kill(i int) error {
	return e.runStep("kill", i, func(ctx context.Context, s *serverState) error {
		return e.killServer(ctx, i, s)
	})
}

func (e *Ensemble) killServer(ctx context.Context, i int, s *serverState) error {
	if !s.running {
		return nil
	}
	if err := e.backend.Kill(ctx, i); err != nil {
		return err
	}
	s.running, s.paused = false, false
	return nil
}

// Start starts server i again, with its data and at the same address. It does not wait until the server serves
// clients; see [Ensemble.WaitReady]. It does nothing if the server is running. It blocks for at most 30 seconds.
func (e *Ensemble) Start(i int) error {
	return e.runStep("start", i, func(ctx context.Context, s *serverState) error {
		return e.startServer(ctx, i, s)
	})
}

func (e *Ensemble) startServer(ctx context.Context, i int, s *serverState) error {
	if s.running {
		return nil
	}
	if err := e.backend.Start(ctx, i); err != nil {
		return err
	}
	s.running = true
	return nil
}

// Restart kills server i and starts it again. No other fault or repair happens in between.
func (e *Ensemble) Restart(i int) error {
	return e.runStep("restart", i, func(ctx context.Context, s *serverState) error {
		if err := e.killServer(ctx, i, s); err != nil {
			return err
		}
		return e.startServer(ctx, i, s)
	})
}

// Pause suspends the process of server i: its connections remain open, but the server neither reads nor answers.
// Pause does nothing if the server is paused. It blocks for at most 30 seconds.
func (e *Ensemble) Pause(i int) error {
	return e.runStep("pause", i, func(ctx context.Context, s *serverState) error {
		if !s.running {
			return errors.New("the server is not running")
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

// Resume continues the process of server i after Pause. It does nothing if the server is not paused. It blocks for
// at most 30 seconds.
func (e *Ensemble) Resume(i int) error {
	return e.runStep("resume", i, func(ctx context.Context, s *serverState) error {
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

// DataDir returns the directory of the data of server i, which a test may change while the server does not run. It
// returns "" if the servers are not processes of this machine.
func (e *Ensemble) DataDir(i int) string {
	if b, ok := e.backend.(*processBackend); ok {
		return b.dataDir(i)
	}
	return ""
}

// ConfigFile returns the path of zoo.cfg of server i, which the server reads when it starts. It returns "" if the
// servers are not processes of this machine.
func (e *Ensemble) ConfigFile(i int) string {
	if b, ok := e.backend.(*processBackend); ok {
		return b.configFile(i)
	}
	return ""
}

// CutOff partitions server i from the other servers, in both directions and without closing connections. Clients
// still reach the server. Heal ends the partition; Kill and Start do not. CutOff blocks for at most 30 seconds.
func (e *Ensemble) CutOff(i int) error {
	return e.runStep("cut off", i, func(ctx context.Context, s *serverState) error {
		if len(e.servers) == 1 {
			return errors.New("the ensemble has no other servers")
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

// Heal ends the partition of server i. It does nothing if the server is not cut off. Heal blocks for at most 30
// seconds, and does not wait until the server serves clients again; see [Ensemble.WaitReady].
func (e *Ensemble) Heal(i int) error {
	return e.runStep("heal", i, func(ctx context.Context, s *serverState) error {
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

// runStep runs a fault or a repair within StepTimeout. It waits until no other fault or repair runs.
func (e *Ensemble) runStep(what string, i int, do func(context.Context, *serverState) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	if i < 0 || i >= len(e.servers) {
		return fmt.Errorf("ensemble: %s server %d: the ensemble has only %d servers", what, i, len(e.servers))
	}
	ctx, cancel := context.WithTimeout(context.Background(), StepTimeout)
	defer cancel()
	if err := do(ctx, &e.servers[i]); err != nil {
		return fmt.Errorf("ensemble: %s server %d: %w", what, i, err)
	}
	return nil
}

// Log returns the last lines of the log of server i, for the output of a failed test. It blocks
// for at most 30 seconds.
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

// Close stops the servers and removes everything that Start has created for them: processes, containers, networks,
// files. Further calls do nothing. Close blocks for at most a minute.
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

// StartBenchmarked starts the servers that a benchmark measures, with the given tick. The servers grant session
// timeouts of 2 to 20 ticks. Unless the environment variable [BackendVariable] selects a backend, StartBenchmarked
// prefers child processes, because clients reach a container through a proxy. The servers sync their data to the
// disk that contains the directory for temporary files: StartBenchmarked sets TMPDIR if it is not set, because
// servers of tests keep their data in memory otherwise.
func StartBenchmarked(ctx context.Context, servers int, tick time.Duration) (*Ensemble, error) {
	if os.Getenv("TMPDIR") == "" {
		if err := os.Setenv("TMPDIR", os.TempDir()); err != nil {
			return nil, err
		}
	}
	cfg := Config{Servers: servers, TickTime: tick}
	if os.Getenv(BackendVariable) != "" {
		return Start(ctx, cfg)
	}
	cfg.Backend = Process
	e, err := Start(ctx, cfg)
	if err == nil || ctx.Err() != nil {
		return e, err
	}
	cfg.Backend = Docker
	e, dockerErr := Start(ctx, cfg)
	return e, errors.Join(err, dockerErr)
}
