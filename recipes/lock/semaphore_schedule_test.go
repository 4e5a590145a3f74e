package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// leaseOp is a change of the number of granted leases: positive for an acquisition, negative for a
// release.
type leaseOp int

// leaseModel is a counter that never exceeds the limit.
func leaseModel(limit int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, _ any) (bool, any) {
			next := state.(int) + int(input.(leaseOp))
			return next <= limit && next >= 0, next
		},
	}
}

// semSchedule is one random schedule: programs acquire and release leases, while connections
// break, replies are lost and sessions expire.
type semSchedule struct {
	*semHarness
	*faultschedule.History
	seed          uint64
	random        *rand.Rand
	limit         int  // the largest limit during the schedule
	changes       bool // whether the limit changes
	mutexProtocol bool // whether the protocol is that of another library
	hooks         []*zktest.Hook

	begin    time.Time
	mu       sync.Mutex
	acquired []*acquired
	ops      []porcupine.Operation
	healed   bool // whether all faults are over
	// expired contains the sessions that were expired by force.
	expired map[int64]bool
}

// acquired describes the leases of one hold.
type acquired struct {
	client   int
	n        int
	sessions [2]int64 // before and after the call; the client does not know which of them owns the leases
	hold     *Hold
	excused  time.Duration // when its session was expired by force, or 0
	lost     time.Duration // when Done was closed, or 0
	healed   bool          // whether it was acquired after all faults
	leave    chan struct{} // closed to make the program release it, after all faults
}

// now returns the time since the start. It is never 0, which means that an event has not occurred.
func (s *semSchedule) now() time.Duration { return 1 + time.Since(s.begin) }

// recordAcquired records new leases, and checks that all leases are within the limit.
func (s *semSchedule) recordAcquired(g *acquired, called time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, porcupine.Operation{ClientId: g.client, Input: leaseOp(g.n), Call: int64(called), Return: int64(s.now())})
	s.acquired = append(s.acquired, g)
	if s.expired[g.sessions[0]] || s.expired[g.sessions[1]] {
		g.excused = s.now()
	}
	held := 0
	for _, x := range s.acquired {
		if x.excused == 0 && x.hold.Err() == nil {
			held += x.n
		}
	}
	if held > s.limit {
		s.Violate("%d leases of %d are held at %v", held, s.limit, s.now())
	}
	context.AfterFunc(g.hold.Context(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		g.lost = s.now()
	})
}

// returned records that leases have ended: by Release, which was called and has returned err, or
// earlier.
func (s *semSchedule) returned(g *acquired, called time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	op := porcupine.Operation{ClientId: 100 + len(s.ops), Input: leaseOp(-g.n), Call: int64(called), Return: int64(s.now())}
	for _, at := range []time.Duration{g.excused, g.lost} {
		if at != 0 && int64(at) < op.Call {
			op.Call, op.Return = int64(at), int64(never)
		}
	}
	if err != nil {
		op.Return = int64(never)
	}
	s.ops = append(s.ops, op)
}

// runProgram repeatedly acquires and releases leases during the faults. After the faults, it
// acquires leases once more, which must succeed, and holds them until leave is closed.
func (s *semSchedule) runProgram(id int, sem *Semaphore, conn *zk.Conn, r *rand.Rand) {
	for round := 0; ; round++ {
		s.mu.Lock()
		healed := s.healed
		s.mu.Unlock()
		n := 1 + r.IntN(min(2, s.limit))
		patience := time.Duration(1+r.IntN(20)) * time.Second
		if healed {
			patience = 10 * time.Minute
		}
		ctx, cancel := context.WithTimeout(s.Context(), patience)
		called, session := s.now(), conn.SessionID()
		var h *Hold
		var err error
		if !healed && r.IntN(5) == 0 {
			h, err = sem.TryAcquire(ctx, n)
		} else {
			h, err = sem.Acquire(ctx, n)
		}
		cancel()
		switch {
		case err == nil:
			g := &acquired{client: id, n: n, sessions: [2]int64{session, conn.SessionID()}, hold: h, healed: healed, leave: make(chan struct{})}
			s.recordAcquired(g, called)
			keep := time.Duration(r.IntN(1500)) * time.Millisecond
			if r.IntN(3) == 0 {
				keep *= 6 // longer than the session timeout
			}
			if healed {
				keep = never
			}
			select {
			case <-h.Done():
			case <-time.After(keep):
			case <-g.leave:
			}
			called = s.now()
			lost := h.Err()
			s.returned(g, called, h.Release())
			if healed && lost == nil {
				return
			}
		case errors.Is(err, context.DeadlineExceeded) && !healed, errors.Is(err, ErrHeld), errors.Is(err, recipes.ErrSessionExpired):
		default:
			s.Violate("%v (after all faults: %v)\n%s", err, healed, s.srv.Tree())
			return
		}
		time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
	}
}

// fault injects a random fault of the network, the server or a session.
func (s *semSchedule) fault(conn *zk.Conn, faults *sync.WaitGroup) {
	r, session := s.random, conn.SessionID()
	if session == 0 {
		return // the client has no session at the moment, and 0 would mean all sessions
	}
	ops := []zktest.Op{zktest.OpCreate, zktest.OpDelete, zktest.OpGetChildren2, zktest.OpGetData, zktest.OpSetData, zktest.OpMulti, zktest.OpSync, zktest.OpAny}
	match := zktest.Match{Op: ops[r.IntN(len(ops))], Session: session, Nth: 1 + r.IntN(3)}
	later := func(d time.Duration, f func()) {
		faults.Go(func() {
			time.Sleep(d)
			f()
		})
	}
	switch r.IntN(10) {
	case 0:
		s.srv.DropConnections(session)
	case 1, 2:
		s.hooks = append(s.hooks, s.srv.After(match, zktest.Cut))
	case 3:
		s.hooks = append(s.hooks, s.srv.Before(match, zktest.Cut))
	case 4:
		s.expire(session)
	case 5:
		s.hooks = append(s.hooks, s.srv.After(match, func(q *zktest.Request) zktest.Verdict {
			s.expire(session)
			return zktest.Cut(q)
		}))
	case 6:
		s.srv.Blackhole([]zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.BothWays}[r.IntN(3)], session)
		later(time.Duration(r.IntN(8000))*time.Millisecond, func() { s.srv.Heal(session) })
	case 7:
		s.srv.Delay(zktest.BothWays, time.Duration(r.IntN(300))*time.Millisecond, session)
		later(time.Duration(r.IntN(3000))*time.Millisecond, func() { s.srv.Delay(zktest.BothWays, 0, session) })
	case 8, 9: // the client cannot reconnect for a time that may exceed the session timeout
		away := s.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: session}, zktest.Cut)
		s.srv.Blackhole(zktest.BothWays, session)
		later(time.Duration(r.IntN(9000))*time.Millisecond, func() {
			away.Remove()
			s.srv.Heal(session)
		})
	}
}

// release makes one of the programs that hold leases after the faults release them.
func (s *semSchedule) release() {
	var holding []*acquired
	for since := s.now(); len(holding) == 0; {
		s.pass(5 * time.Second)
		s.requireNoneStranded()
		s.mu.Lock()
		for _, g := range s.acquired {
			if g.healed && g.hold.Err() == nil {
				holding = append(holding, g)
			}
		}
		s.mu.Unlock()
		if s.now()-since > 5*time.Minute {
			s.Violate("no contender acquires leases\n%s", s.srv.Tree())
			return
		}
	}
	close(holding[s.random.IntN(len(holding))].leave)
}

// requireNoneStranded asserts that all contenders whose leases are within the limit have acquired
// them.
func (s *semSchedule) requireNoneStranded() {
	if s.mutexProtocol {
		return // contenders for leases do not queue
	}
	children, _, err := s.operator.Children(semPath)
	require.NoError(s, err)
	contenders, _, _ := contender.Order(children, "")
	limit, _, stored := storedLimit(children)
	if !stored {
		limit = s.limit
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := int64(0)
	for _, name := range contenders {
		if !contender.Recognized(name) {
			continue // the record of a SetLimit, whose random name can end in ten digits
		}
		if taken += leasesOf([]string{name}); taken > int64(limit) {
			return
		}
		if !slices.ContainsFunc(s.acquired, func(g *acquired) bool { return g.hold.path == semPath+"/"+name && g.hold.Err() == nil }) {
			s.Violate("the leases of %s are within the limit, and Acquire has not returned\n%s", name, s.srv.Tree())
		}
	}
}

// expire expires a session by force, of which its holders learn late.
func (s *semSchedule) expire(session int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.acquired {
		if slices.Contains(g.sessions[:], session) && g.excused == 0 {
			g.excused = s.now()
		}
	}
	s.expired[session] = true
	_ = s.srv.ExpireSession(session)
}

// runSemaphoreSchedule runs one schedule, and checks its history. If make is not nil, it returns a
// semaphore with the protocol of another library.
func runSemaphoreSchedule(t *testing.T, seed uint64, verbose bool, make func(w *semHarness, conn *zk.Conn, limit int) *Semaphore) (s *semSchedule) {
	runSemaphoreTest(t, func(w *semHarness) {
		s = &semSchedule{
			semHarness: w, History: faultschedule.NewHistory(verbose),
			seed: seed, random: rand.New(rand.NewPCG(seed, 5)), begin: time.Now(), expired: map[int64]bool{},
		}
		s.limit = 1 + s.random.IntN(4)
		s.mutexProtocol = make != nil
		s.changes = !s.mutexProtocol && seed%3 == 0
		if s.changes {
			s.limit = 5
		}
		if make == nil {
			make = func(w *semHarness, conn *zk.Conn, limit int) *Semaphore { return w.semaphore(conn, limit) }
		}
		var conns []*zk.Conn
		var programs, faults sync.WaitGroup
		var shared *zk.Conn
		for id := range 3 + s.random.IntN(4) {
			conn := w.connect()
			if shared != nil && s.random.IntN(3) == 0 {
				conn = shared
			}
			shared = conn
			conns = append(conns, conn)
			sem, r := make(w, conn, s.limit), rand.New(rand.NewPCG(seed, uint64(id)))
			programs.Go(func() { s.runProgram(id, sem, conn, r) })
		}
		for range 14 {
			time.Sleep(time.Duration(s.random.IntN(1500)) * time.Millisecond)
			s.fault(conns[s.random.IntN(len(conns))], &faults)
			if s.changes {
				require.NoError(w, w.semaphore(w.operator, 1).SetLimit(w.Context(), 2+s.random.IntN(4)))
			}
		}
		faults.Wait()
		for _, h := range s.hooks {
			h.Remove()
		}
		w.srv.Heal()
		w.pass(timeout + 2*time.Second) // until isolated sessions have expired
		s.requireNoneStranded()
		s.mu.Lock()
		s.healed = true
		s.mu.Unlock()
		for range conns {
			s.release()
		}
		programs.Wait()
		w.pass(3 * timeout)
		require.Empty(w, w.leases(), "seed %d\n%s", seed, w.srv.Tree())
		require.Empty(w, w.srv.Watches(), "seed %d", seed)
		s.AddRequests(w.ensemble)
	})
	if porcupine.CheckOperationsTimeout(leaseModel(s.limit), s.ops, time.Minute) != porcupine.Ok {
		s.Violate("not linearizable with limit %d: %+v", s.limit, s.ops)
	}
	return s
}

// String describes the schedule.
func (s *semSchedule) String() string {
	return fmt.Sprintf("seed %d: limit %d, limit changes %v, protocol with a mutex %v", s.seed, s.limit, s.changes, s.mutexProtocol)
}

// runSemaphoreSchedules runs schedules, and returns the number of acquisitions.
func runSemaphoreSchedules(t *testing.T, count int, make func(w *semHarness, conn *zk.Conn, limit int) *Semaphore) int {
	var total atomic.Int64
	faultschedule.Run(t, count, nil, func(t *testing.T, seed uint64, verbose bool) (fmt.Stringer, *faultschedule.History) {
		s := runSemaphoreSchedule(t, seed, verbose, make)
		total.Add(int64(len(s.acquired)))
		return s, s.History
	})
	t.Logf("%d acquisitions", total.Load())
	return int(total.Load())
}

func TestSemaphoreSchedules(t *testing.T) {
	const count = 80
	total := runSemaphoreSchedules(t, count, nil)
	if !faultschedule.Single() {
		require.Greater(t, total, 5*count, "the schedules acquire too few leases")
	}
}

func TestSemaphoreSchedules_MutexProtocol(t *testing.T) {
	for name, make := range otherProtocols {
		t.Run(name, func(t *testing.T) { runSemaphoreSchedules(t, 20, make) })
	}
}

// The checker must detect histories in which leases exceed the limit.
func TestSemaphoreSchedules_Model(t *testing.T) {
	op := func(n int, call, ret int64) porcupine.Operation {
		return porcupine.Operation{ClientId: int(call), Input: leaseOp(n), Call: call, Return: ret}
	}
	for name, c := range map[string]struct {
		ops []porcupine.Operation
		ok  bool
	}{
		"within":                           {[]porcupine.Operation{op(2, 1, 2), op(-2, 3, 4), op(2, 5, 6)}, true},
		"above":                            {[]porcupine.Operation{op(2, 1, 2), op(1, 3, 4), op(-2, 5, 6)}, false},
		"release overlaps the acquisition": {[]porcupine.Operation{op(2, 1, 2), op(1, 3, 6), op(-2, 4, 5)}, true},
		"lost":                             {[]porcupine.Operation{op(2, 1, 2), op(-2, 3, int64(never)), op(2, 4, 5)}, true},
	} {
		require.Equal(t, c.ok, porcupine.CheckOperations(leaseModel(2), c.ops), name)
	}
}
