package faultschedule

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// Faults injects faults into an ensemble. Each fault ends after a duration, or with HealAll. Faults
// are injected by one goroutine.
type Faults struct {
	ensemble *zktest.Ensemble
	latency  time.Duration
	hooks    []*zktest.Hook
	timers   []*time.Timer
	stopped  []atomic.Bool // by server
}

// NewEnsemble starts an ensemble for a schedule, in a bubble with fake time. It logs requests if
// verbose is set.
func NewEnsemble(t *testing.T, servers int, tick, sessionTimeout time.Duration, verbose bool) *zktest.Ensemble {
	logLimit := 0
	if verbose {
		logLimit = 1 << 16
	}
	return zktest.StartEnsemble(t, servers, zktest.WithTick(tick), zktest.WithSessionTimeouts(sessionTimeout, time.Minute),
		zktest.WithSyncLimit(5*tick), zktest.WithLogLimit(logLimit))
}

// NewFaults returns the Faults of an ensemble. latency is the latency of its servers without
// faults, in each direction.
func NewFaults(e *zktest.Ensemble, latency time.Duration) *Faults {
	f := &Faults{ensemble: e, latency: latency, stopped: make([]atomic.Bool, e.Len())}
	f.each(func(s *zktest.Server) { s.Delay(zktest.BothWays, latency) })
	return f
}

func (f *Faults) each(do func(*zktest.Server)) {
	for i := range f.ensemble.Len() {
		do(f.ensemble.Server(i))
	}
}

// after calls heal after d, unless HealAll is called before.
func (f *Faults) after(d time.Duration, heal func()) {
	f.timers = append(f.timers, time.AfterFunc(d, heal))
}

// LoseRequest loses a request and breaks its connection. The request is not applied.
func (f *Faults) LoseRequest(m zktest.Match) { f.FailRequest(m, zktest.Cut) }

// LoseReply loses the reply to a request and breaks its connection. The request is applied.
func (f *Faults) LoseReply(m zktest.Match) {
	f.hooks = append(f.hooks, f.ensemble.Server(0).After(m, zktest.Cut))
}

// FailRequest makes a request fail, which is not applied.
func (f *Faults) FailRequest(m zktest.Match, how zktest.HookFunc) {
	f.hooks = append(f.hooks, f.ensemble.Server(0).Before(m, how))
}

// Drop breaks the connection of a session.
func (f *Faults) Drop(session int64) {
	f.each(func(s *zktest.Server) { s.DropConnections(session) })
}

// Expire makes a session expire, although its client is alive.
func (f *Faults) Expire(session int64) { _ = f.ensemble.Server(0).ExpireSession(session) }

// Blackhole loses the packets of a session in one direction, or in both, depending on n.
func (f *Faults) Blackhole(session int64, n int, d time.Duration) {
	direction := []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.BothWays}[n%3]
	f.each(func(s *zktest.Server) { s.Blackhole(direction, session) })
	f.after(d, func() { f.healSession(session) })
}

// Slow delays the packets of a session by d/8, for 2*d.
func (f *Faults) Slow(session int64, d time.Duration) {
	f.each(func(s *zktest.Server) { s.Delay(zktest.BothWays, d/8, session) })
	f.after(2*d, func() { f.healSession(session) })
}

// Isolate cuts the server of a session off from the others, for this session only: it reads old
// states, its writes stall, and it expires.
func (f *Faults) Isolate(session int64, d time.Duration) {
	f.each(func(s *zktest.Server) { s.Partition(session) })
	f.after(d, func() { f.healSession(session) })
}

// DropAll breaks all connections to a server. The servers are numbered from 0; greater numbers are
// taken modulo the number of servers.
func (f *Faults) DropAll(server int) { f.server(server).DropConnections() }

// Partition cuts a server off from the others.
func (f *Faults) Partition(server int, d time.Duration) {
	s := f.server(server)
	s.Partition()
	f.after(d, func() { f.healServer(s) })
}

// Pause pauses a server.
func (f *Faults) Pause(server int, d time.Duration) {
	s := f.server(server)
	s.Pause()
	f.after(d, s.Resume)
}

// Stop stops a server, which restarts with its data.
func (f *Faults) Stop(server int, d time.Duration) {
	s := f.server(server)
	f.stopped[s.ID()].Store(true)
	s.Stop()
	f.after(d, func() { f.restart(s) })
}

// RestartEmpty restarts all servers without their data.
func (f *Faults) RestartEmpty() {
	for i := range f.stopped {
		f.stopped[i].Store(false)
	}
	f.ensemble.Restart(zktest.LoseTree)
}

// Lag makes a server apply each transaction later by lag.
func (f *Faults) Lag(server int, lag, d time.Duration) {
	s := f.server(server)
	s.LagBy(lag)
	f.after(d, func() { f.healServer(s) })
}

// Exclude prevents a session from connecting again.
func (f *Faults) Exclude(session int64, d time.Duration) {
	hook := f.ensemble.Server(0).Before(zktest.Match{Op: zktest.OpConnect, Session: session}, zktest.Cut)
	f.hooks = append(f.hooks, hook)
	f.after(d, hook.Remove)
}

// Refuse makes a server reject new connections.
func (f *Faults) Refuse(server int, d time.Duration) {
	s := f.server(server)
	s.Refuse(true)
	f.after(d, func() { s.Refuse(false) })
}

func (f *Faults) server(i int) *zktest.Server { return f.ensemble.Server(i % f.ensemble.Len()) }

func (f *Faults) restart(s *zktest.Server) {
	if f.stopped[s.ID()].Swap(false) {
		s.Restart(zktest.KeepTree)
	}
}

func (f *Faults) healSession(session int64) {
	f.each(func(s *zktest.Server) {
		s.Heal(session)
		s.Delay(zktest.BothWays, f.latency, session)
	})
}

func (f *Faults) healServer(s *zktest.Server) {
	s.Heal()
	s.Delay(zktest.BothWays, f.latency)
}

// HealAll ends all faults.
func (f *Faults) HealAll() {
	for _, t := range f.timers {
		t.Stop()
	}
	for _, h := range f.hooks {
		h.Remove()
	}
	f.each(func(s *zktest.Server) {
		s.Refuse(false)
		s.Resume()
		f.restart(s)
		f.healServer(s)
	})
}
