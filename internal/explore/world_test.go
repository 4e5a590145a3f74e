package explore

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	node     = "/election"
	register = "/register" // what leaders write to
)

// world is one schedule under way. Only the goroutine that plays the schedule
// uses its fields, but for the history.
type world struct {
	*history
	schedule
	ensemble   *zktest.Ensemble
	operator   *zk.Conn
	links      []*link
	candidates []*candidate
	hooks      []*zktest.Hook
	heals      []*time.Timer
	down       []atomic.Bool // servers that were stopped
	busy       sync.WaitGroup
	ended      bool        // EndElection was called
	rebuilt    bool        // the servers have lost their data
	endAsked   atomic.Bool // and has not returned yet
	closing    atomic.Bool
}

// play runs a schedule in a bubble and returns its history. With a log the
// requests that the servers have seen are part of it.
func play(t *testing.T, s schedule, withLog bool) (h *history) {
	synctest.Test(t, func(t *testing.T) {
		h = newHistory()
		limit := 0
		if withLog {
			limit = 1 << 16
		}
		w := &world{history: h, schedule: s, down: make([]atomic.Bool, s.servers)}
		w.ensemble = zktest.Cluster(t, s.servers,
			zktest.WithTick(s.tick), zktest.WithSessionTimeouts(s.timeout, time.Minute),
			zktest.WithSyncLimit(5*s.tick), zktest.WithLogLimit(limit))
		w.begin()
		for _, step := range s.steps {
			w.pass(step.wait)
			w.do(step)
			w.check()
		}
		w.finish()
		if withLog {
			for _, e := range w.ensemble.Server(0).Log() {
				if e.Op != zktest.OpPing {
					h.lines = append(h.lines, line{e.Time.Sub(h.start), "    server %d: %v", []any{e.Server, e}})
				}
			}
			slices.SortStableFunc(h.lines, func(a, b line) int { return int(a.at - b.at) })
		}
	})
	return h
}

func (w *world) begin() {
	w.each(func(s *zktest.Server) { s.Delay(zktest.BothWays, w.latency) })
	conn, _, err := w.ensemble.Connect(time.Minute)
	for _, path := range []string{node, register} {
		if err == nil {
			_, err = conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		}
	}
	if err != nil {
		w.violation("cannot begin: %v", err)
	}
	w.operator = conn
}

func (w *world) each(f func(*zktest.Server)) {
	for i := range w.ensemble.Len() {
		f(w.ensemble.Server(i))
	}
}

// pass lets time pass, and then what happens at that instant happen.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) do(s step) {
	switch s.kind {
	case join:
		w.join(s.who)
		return
	case resign:
		if c := w.choose(s.who); c != nil {
			w.resign(c)
		}
		return
	case dropAll, partition, pause, stop, refuse, lag:
		w.toServer(s)
		return
	case isolate:
		w.isolate(s)
		return
	case rebuild:
		w.rebuild()
		return
	}
	c := w.choose(s.who)
	if c == nil {
		return
	}
	w.note("%s: %v", c.name, s)
	session := c.link.conn.SessionID()
	if session == 0 {
		return
	}
	switch s.kind {
	case cutReply, cutRequest:
		op := []zktest.Op{zktest.OpCreate, zktest.OpCreate, zktest.OpMulti, zktest.OpDelete, zktest.OpGetData, zktest.OpGetChildren2, zktest.OpSync, zktest.OpExists, zktest.OpAny}[s.n%9]
		match := zktest.Match{Op: op, Session: session, Nth: 1 + s.n/10%3}
		set := w.ensemble.Server(0).After
		if s.kind == cutRequest {
			set = w.ensemble.Server(0).Before
		}
		w.hooks = append(w.hooks, set(match, zktest.Cut))
	case forget:
		match := zktest.Match{Op: zktest.OpSetWatches, Session: session, Nth: 1}
		w.hooks = append(w.hooks, w.ensemble.Server(0).Before(match, zktest.Fail(zk.ErrAPIError)))
	case drop:
		w.each(func(s *zktest.Server) { s.DropConnections(session) })
	case blackhole:
		direction := []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.BothWays}[s.n%3]
		w.each(func(s *zktest.Server) { s.Blackhole(direction, session) })
		w.later(s.last, func() { w.heal(session) })
	case slow:
		w.each(func(x *zktest.Server) { x.Delay(zktest.BothWays, s.last/8, session) })
		w.later(2*s.last, func() { w.heal(session) })
	case strand:
		w.each(func(s *zktest.Server) { s.Partition(session) })
		w.later(s.last, func() { w.heal(session) })
	case expire:
		w.excuseAll(c.link)
		_ = w.ensemble.Server(0).ExpireSession(session)
	case operatorDelete:
		if id := c.id(); id != "" {
			w.excuse(id)
			w.busy.Go(func() {
				err := w.operator.Delete(id, -1)
				for !w.closing.Load() && err != nil && !errors.Is(err, zk.ErrNoNode) {
					time.Sleep(10 * time.Millisecond)
					err = w.operator.Delete(id, -1)
				}
				w.taken(id)
				w.note("operator has deleted the znode of %s: %v", c.name, err)
			})
		}
	case closeConn:
		w.excuseAll(c.link)
		c.link.closed = true
		c.link.conn.Close()
	}
}

// rebuild makes all servers return without their data. Nothing can prevent that leaders
// overlap then: the new tree knows nothing of the leases of the earlier sessions.
func (w *world) rebuild() {
	w.note("the servers return empty")
	w.rebuilt = true
	for _, c := range w.candidates {
		w.excuse(c.id())
	}
	for i := range w.down {
		w.down[i].Store(false)
	}
	w.ensemble.Restart(zktest.LoseTree)
	for _, c := range w.candidates {
		w.taken(c.id())
	}
}

// isolate cuts off the leading candidate, alone or with the whole server, until after its
// session has expired. Its lease must end before the next candidate leads.
func (w *world) isolate(s step) {
	leading := w.leading()
	if len(leading) == 0 {
		return
	}
	i := slices.IndexFunc(w.candidates, func(c *candidate) bool { return c.name == leading[0].who })
	c := w.candidates[i]
	session := c.link.conn.SessionID()
	w.note("%s: %v", c.name, s)
	last := 2*w.timeout + s.last
	// The client must not reconnect to another server.
	hook := w.ensemble.Server(0).Before(zktest.Match{Op: zktest.OpConnect, Session: session}, zktest.Cut)
	w.hooks = append(w.hooks, hook)
	w.later(last, hook.Remove)
	for _, x := range w.ensemble.Server(0).Sessions() {
		if s.n%2 == 0 && x.ID == session && x.Server >= 0 && w.servers > 1 {
			w.toServer(step{kind: partition, who: x.Server, last: last})
			return
		}
	}
	w.each(func(s *zktest.Server) { s.Partition(session) })
	w.later(last, func() { w.heal(session) })
}

func (w *world) toServer(s step) {
	i := s.who % w.ensemble.Len()
	server := w.ensemble.Server(i)
	w.note("server %d: %v", i, s)
	switch s.kind {
	case dropAll:
		server.DropConnections()
	case partition:
		server.Partition()
		w.later(s.last, func() { w.healServer(server) })
	case lag:
		server.LagBy(1 + s.last/4)
		w.later(s.last, func() { w.healServer(server) })
	case pause:
		server.Pause()
		w.later(s.last, server.Resume)
	case stop:
		w.down[i].Store(true)
		server.Stop()
		w.later(s.last, func() {
			server.Restart(zktest.KeepTree)
			w.down[i].Store(false)
		})
	case refuse:
		server.Refuse(true)
		w.later(s.last, func() { server.Refuse(false) })
	}
}

// later ends a fault, unless the end of the schedule does.
func (w *world) later(d time.Duration, f func()) {
	w.heals = append(w.heals, time.AfterFunc(d, f))
}

func (w *world) heal(session int64) {
	w.each(func(s *zktest.Server) {
		s.Heal(session)
		s.Delay(zktest.BothWays, w.latency, session)
	})
}

func (w *world) healServer(s *zktest.Server) {
	s.Heal()
	s.Delay(zktest.BothWays, w.latency)
}

func (w *world) healAll() {
	for _, t := range w.heals {
		t.Stop()
	}
	for _, h := range w.hooks {
		h.Remove()
	}
	w.each(func(s *zktest.Server) {
		s.Refuse(false)
		s.Resume()
		if w.down[s.ID()].Load() {
			s.Restart(zktest.KeepTree)
		}
		w.healServer(s)
	})
	w.note("all faults are healed")
}

// resignLimit is the promise of Resign.
const resignLimit = 2 * time.Second
