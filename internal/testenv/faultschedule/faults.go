package faultschedule

import (
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// Faults injects faults into an ensemble. Each fault ends after a duration, or when Trial.Heal is called. One
// goroutine injects the faults.
type Faults struct {
	ensemble *zktest.Ensemble
	latency  time.Duration
	hooks    []*zktest.Hook
	timers   []*time.Timer
	stopped  []atomic.Bool // for each server, whether the step Stop has stopped it
}

// newFaults returns the Faults of an ensemble. latency is the latency in each direction while there is no fault.
func newFaults(e *zktest.Ensemble, latency time.Duration) *Faults {
	f := &Faults{ensemble: e, latency: latency, stopped: make([]atomic.Bool, e.Len())}
	f.eachServer(func(s *zktest.Server) { s.Delay(zktest.BothWays, latency) })
	return f
}

func (f *Faults) eachServer(do func(*zktest.Server)) {
	for i := range f.ensemble.Len() {
		do(f.ensemble.Server(i))
	}
}

// healAfter calls heal after the time d, unless healAll is called first.
func (f *Faults) healAfter(d time.Duration, heal func()) {
	f.timers = append(f.timers, time.AfterFunc(d, heal))
}

// Requests describes the requests of a client at which a fault can happen: Step.N selects one of the operations in
// Ops, and one of the next Nth requests with this operation.
type Requests struct {
	Ops []zktest.Op
	Nth int
}

// OfServer reports whether k is a fault of a server, and not of a session.
func (k Kind) OfServer() bool {
	switch k {
	case DropAll, Partition, Pause, Stop, Refuse, Lag:
		return true
	}
	return false
}

// Inject injects the fault of a step into a session or into a server. q describes the requests of the session
// that the fault can select. Inject does nothing for steps that are not faults.
func (f *Faults) Inject(step Step, session int64, q Requests) {
	if step.Kind.OfServer() {
		f.injectIntoServer(step)
		return
	}
	if session == 0 {
		return // the client has no session at the moment; 0 would select all sessions
	}
	match := zktest.Match{Op: q.Ops[step.N%len(q.Ops)], Session: session, Nth: 1 + step.N/10%q.Nth}
	switch step.Kind {
	case LoseReply:
		f.hooks = append(f.hooks, f.ensemble.Server(0).After(match, zktest.Cut))
	case LoseRequest:
		f.hooks = append(f.hooks, f.ensemble.Server(0).Before(match, zktest.Cut))
	case RejectWatches:
		match.Op, match.Nth = zktest.OpSetWatches, 1+step.N%2
		f.hooks = append(f.hooks, f.ensemble.Server(0).Before(match, zktest.Fail(zktest.Code(-127))))
	case Drop:
		f.eachServer(func(s *zktest.Server) { s.DropConnections(session) })
	case Blackhole:
		direction := []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.BothWays}[step.N%3]
		f.eachServer(func(s *zktest.Server) { s.Blackhole(direction, session) })
		f.healAfter(step.Duration, func() { f.healSession(session) })
	case Slow:
		f.eachServer(func(s *zktest.Server) { s.Delay(zktest.BothWays, step.Duration/8, session) })
		f.healAfter(2*step.Duration, func() { f.healSession(session) })
	case Isolate: // cut the server of the session off from the others, for this session only
		f.eachServer(func(s *zktest.Server) { s.Partition(session) })
		f.healAfter(step.Duration, func() { f.healSession(session) })
	case Expire:
		_ = f.ensemble.Server(0).ExpireSession(session)
	}
}

func (f *Faults) injectIntoServer(step Step) {
	s := f.ensemble.Server(step.Who % f.ensemble.Len())
	switch step.Kind {
	case DropAll:
		s.DropConnections()
	case Partition:
		s.Partition()
		f.healAfter(step.Duration, func() { f.healServer(s) })
	case Pause:
		s.Pause()
		f.healAfter(step.Duration, s.Resume)
	case Stop:
		f.stopped[s.ID()].Store(true)
		s.Stop()
		f.healAfter(step.Duration, func() { f.restart(s) })
	case Refuse:
		s.Refuse(true)
		f.healAfter(step.Duration, func() { s.Refuse(false) })
	case Lag:
		s.LagBy(1 + step.Duration/4)
		f.healAfter(step.Duration, func() { f.healServer(s) })
	}
}

// RestartEmpty restarts all servers without their data.
func (f *Faults) RestartEmpty() {
	for i := range f.stopped {
		f.stopped[i].Store(false)
	}
	f.ensemble.Restart(zktest.LoseTree)
}

// Exclude prevents the client of a session from connecting again for the time d.
func (f *Faults) Exclude(session int64, d time.Duration) {
	hook := f.ensemble.Server(0).Before(zktest.Match{Op: zktest.OpConnect, Session: session}, zktest.Cut)
	f.hooks = append(f.hooks, hook)
	f.healAfter(d, hook.Remove)
}

func (f *Faults) restart(s *zktest.Server) {
	if f.stopped[s.ID()].Swap(false) {
		s.Restart(zktest.KeepTree)
	}
}

func (f *Faults) healSession(session int64) {
	f.eachServer(func(s *zktest.Server) {
		s.Heal(session)
		s.Delay(zktest.BothWays, f.latency, session)
	})
}

func (f *Faults) healServer(s *zktest.Server) {
	s.Heal()
	s.Delay(zktest.BothWays, f.latency)
}

// healAll ends all faults.
func (f *Faults) healAll() {
	for _, t := range f.timers {
		t.Stop()
	}
	for _, h := range f.hooks {
		h.Remove()
	}
	f.eachServer(func(s *zktest.Server) {
		s.Refuse(false)
		s.Resume()
		f.restart(s)
		f.healServer(s)
	})
}
