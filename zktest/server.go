package zktest

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// TB contains the methods of [testing.TB] that [Start] and [StartEnsemble] use.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Server is one ZooKeeper server. Its methods are safe for concurrent use and may be
// called from hooks. After [Server.Close] methods that change the server do nothing, and
// the others return the final state.
type Server struct {
	e  *ensemble
	id int
	t  TB

	// The following fields are guarded by e.mu.
	conns          map[*conn]struct{}
	view           *view         // the state that its clients read while it is cut off or lags, or nil
	cut            bool          // reports that the server is partitioned
	lags           bool          // reports that the server lags, after a call of Lag or LagBy
	lagBy          time.Duration // the argument of LagBy; 0 for Lag
	stopLag        func()        // stops the timer of LagBy
	paused         bool
	stopped        bool
	refuses        bool
	rejectsClients bool       // reports that disconnectClients was called, and that the server rejects new clients
	stopSync       func()     // stops the timer of the sync limit
	faults         connFaults // the faults of later connections
	bound          string     // a copy of addr that the mutex of the ensemble guards

	lnMu sync.Mutex
	ln   net.Listener
	addr string // the TCP address; empty until the server has listened
}

// Start starts a server and closes it when the test ends. If an option is invalid, it
// fails the test. A test that uses a synctest bubble must call Start inside the bubble.
func Start(t TB, opts ...Option) *Server {
	t.Helper()
	s, err := NewServer(opts...)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	s.t = t
	t.Cleanup(s.Close)
	return s
}

// NewServer starts a server outside of a test. The caller must close it.
func NewServer(opts ...Option) (*Server, error) {
	e, err := newEnsemble(1, opts)
	if err != nil {
		return nil, err
	}
	return e.servers[0], nil
}

// Close closes the clients that [Server.Connect] has made, closes all other connections,
// and waits until all goroutines of the server have ended, including hooks that are
// running. It closes all servers of an ensemble. Further calls do nothing.
func (s *Server) Close() { s.e.closeServers() }

// Name returns the server's name for [Server.Dialer], for example "zk1:2181". It cannot
// be resolved by DNS.
func (s *Server) Name() string { return fmt.Sprintf("zk%d:2181", s.id+1) }

// ID returns the number of the server in its ensemble, counted from 0.
func (s *Server) ID() int { return s.id }
