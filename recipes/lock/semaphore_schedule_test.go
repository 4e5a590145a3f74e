package lock

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

var (
	semSchedules = flag.Int("semaphore.schedules", 80, "how many random schedules of semaphores to play")
	semSeed      = flag.Uint64("semaphore.seed", 0, "play this schedule only")
)

// leaseOp is an operation on the number of leases that are given: positive for an
// acquisition, negative for a return.
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

// semSchedule is one random history: programs that take and return leases, while
// connections break, replies get lost and sessions end.
type semSchedule struct {
	*semHarness
	seed          uint64
	random        *rand.Rand
	limit         int  // the largest that is ever in force
	changes       bool // whether it changes
	mutexProtocol bool // whether the protocol is that of another library
	hooks         []*zktest.Hook

	begin time.Time
	mu    sync.Mutex
	given []*given
	ops   []porcupine.Operation
	calm  bool // no more faults
	// expired are the sessions that were ended by force.
	expired map[int64]bool
}

// given are leases that somebody has got.
type given struct {
	client   int
	n        int
	sessions [2]int64 // before and after; which one it was is not known to a client
	hold     *Hold
	excused  time.Duration // since when its session is over by force; 0 for not
	told     time.Duration // when Done was closed; 0 before
	calm     bool          // acquired after all faults
	leave    chan struct{} // closed to have it released, in calm
}

// now is never 0, which means that something has not happened.
func (s *semSchedule) now() time.Duration { return 1 + time.Since(s.begin) }

// got checks that with the new leases there are no more than the limit.
func (s *semSchedule) got(g *given, called time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, porcupine.Operation{ClientId: g.client, Input: leaseOp(g.n), Call: int64(called), Return: int64(s.now())})
	s.given = append(s.given, g)
	if s.expired[g.sessions[0]] || s.expired[g.sessions[1]] {
		g.excused = s.now()
	}
	held := 0
	for _, x := range s.given {
		if x.excused == 0 && x.hold.Err() == nil {
			held += x.n
		}
	}
	if held > s.limit {
		s.Errorf("seed %d: %d leases of %d are held at %v", s.seed, held, s.limit, s.now())
	}
	context.AfterFunc(g.hold.Context(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		g.told = s.now()
	})
}

// returned notes the end of leases: by Release, which was called and has returned err,
// or before it.
func (s *semSchedule) returned(g *given, called time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	op := porcupine.Operation{ClientId: 100 + len(s.ops), Input: leaseOp(-g.n), Call: int64(called), Return: int64(s.now())}
	for _, at := range []time.Duration{g.excused, g.told} {
		if at != 0 && int64(at) < op.Call {
			op.Call, op.Return = int64(at), int64(never)
		}
	}
	if err != nil {
		op.Return = int64(never)
	}
	s.ops = append(s.ops, op)
}

// work is one program: it takes leases and returns them, some rounds under fire, and
// one in calm, in which it must be served and holds until it is told to leave.
func (s *semSchedule) work(id int, sem *Semaphore, conn *zk.Conn, r *rand.Rand) {
	for round := 0; ; round++ {
		s.mu.Lock()
		calm := s.calm
		s.mu.Unlock()
		n := 1 + r.IntN(min(2, s.limit))
		patience := time.Duration(1+r.IntN(20)) * time.Second
		if calm {
			patience = 10 * time.Minute
		}
		ctx, cancel := context.WithTimeout(s.Context(), patience)
		called, session := s.now(), conn.SessionID()
		var h *Hold
		var err error
		if !calm && r.IntN(5) == 0 {
			h, err = sem.TryAcquire(ctx, n)
		} else {
			h, err = sem.Acquire(ctx, n)
		}
		cancel()
		switch {
		case err == nil:
			g := &given{client: id, n: n, sessions: [2]int64{session, conn.SessionID()}, hold: h, calm: calm, leave: make(chan struct{})}
			s.got(g, called)
			keep := time.Duration(r.IntN(1500)) * time.Millisecond
			if r.IntN(3) == 0 {
				keep *= 6 // beyond the session's end, if it comes to that
			}
			if calm {
				keep = never
			}
			select {
			case <-h.Done():
			case <-time.After(keep):
			case <-g.leave:
			}
			called = s.now()
			ctx, cancel := context.WithTimeout(s.Context(), time.Duration(1+r.IntN(5))*time.Second)
			lost := h.Err()
			s.returned(g, called, h.Release(ctx))
			cancel()
			if calm && lost == nil {
				return
			}
		case errors.Is(err, context.DeadlineExceeded) && !calm, errors.Is(err, ErrHeld), errors.Is(err, recipes.ErrSessionExpired):
		default:
			s.Errorf("seed %d: %v (calm: %v)\n%s", s.seed, err, calm, s.srv.Tree())
			return
		}
		time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
	}
}

// fault does something to the network, the server, or a session.
func (s *semSchedule) fault(conn *zk.Conn, faults *sync.WaitGroup) {
	r, session := s.random, conn.SessionID()
	if session == 0 {
		return // it has none at the moment, and 0 stands for all
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
	case 8, 9: // and does not get in again, perhaps before its session has ended
		away := s.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: session}, zktest.Cut)
		s.srv.Blackhole(zktest.BothWays, session)
		later(time.Duration(r.IntN(9000))*time.Millisecond, func() {
			away.Remove()
			s.srv.Heal(session)
		})
	}
}

// release has one of those return what they hold who hold in calm.
func (s *semSchedule) release() {
	var holding []*given
	for since := s.now(); len(holding) == 0; {
		s.pass(5 * time.Second)
		s.nobodyIsStranded()
		s.mu.Lock()
		for _, g := range s.given {
			if g.calm && g.hold.Err() == nil {
				holding = append(holding, g)
			}
		}
		s.mu.Unlock()
		if s.now()-since > 5*time.Minute {
			s.Errorf("seed %d: nobody is let in\n%s", s.seed, s.srv.Tree())
			return
		}
	}
	close(holding[s.random.IntN(len(holding))].leave)
}

// nobodyIsStranded asserts that all whom the line lets in have been told.
func (s *semSchedule) nobodyIsStranded() {
	if s.mutexProtocol {
		return // there is no line
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
		if !slices.ContainsFunc(s.given, func(g *given) bool { return g.hold.path == semPath+"/"+name && g.hold.Err() == nil }) {
			s.Errorf("seed %d: %s is let in and does not know\n%s", s.seed, name, s.srv.Tree())
		}
	}
}

// expire ends a session by force, which nobody is told in time.
func (s *semSchedule) expire(session int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.given {
		if slices.Contains(g.sessions[:], session) && g.excused == 0 {
			g.excused = s.now()
		}
	}
	s.expired[session] = true
	_ = s.srv.ExpireSession(session)
}

// playSchedule plays one schedule, and returns what was acquired and returned.
func playSchedule(t *testing.T, seed uint64, make func(w *semHarness, conn *zk.Conn, limit int) *Semaphore) (limit int, ops []porcupine.Operation, acquired int) {
	runSemaphoreTest(t, func(w *semHarness) {
		s := &semSchedule{semHarness: w, seed: seed, random: rand.New(rand.NewPCG(seed, 5)), begin: time.Now(), expired: map[int64]bool{}}
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
			programs.Go(func() { s.work(id, sem, conn, r) })
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
		w.pass(timeout + 2*time.Second) // sessions that are to end have ended
		s.nobodyIsStranded()
		s.mu.Lock()
		s.calm = true
		s.mu.Unlock()
		for range conns {
			s.release()
		}
		programs.Wait()
		w.pass(3 * timeout)
		require.Empty(w, w.leases(), "seed %d\n%s", seed, w.srv.Tree())
		require.Empty(w, w.srv.Watches(), "seed %d", seed)
		limit, ops, acquired = s.limit, s.ops, len(s.given)
		if s.changes {
			limit = 5
		}
	})
	return limit, ops, acquired
}

func TestSemaphoreSchedules(t *testing.T) {
	total := 0
	for seed := range uint64(*semSchedules) {
		if *semSeed != 0 && seed != *semSeed {
			continue
		}
		limit, ops, acquired := playSchedule(t, seed, nil)
		total += acquired
		if porcupine.CheckOperationsTimeout(leaseModel(limit), ops, time.Minute) != porcupine.Ok {
			t.Errorf("seed %d: not linearizable with limit %d: %+v", seed, limit, ops)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if *semSeed == 0 {
		require.Greater(t, total, 5**semSchedules, "the schedules do nothing")
	}
	t.Logf("%d acquisitions", total)
}

func TestSemaphoreInCompanySchedules(t *testing.T) {
	for name, make := range companies {
		t.Run(name, func(t *testing.T) {
			total := 0
			for seed := range uint64(*semSchedules / 4) {
				limit, ops, acquired := playSchedule(t, seed, make)
				total += acquired
				if porcupine.CheckOperationsTimeout(leaseModel(limit), ops, time.Minute) != porcupine.Ok {
					t.Errorf("seed %d: not linearizable with limit %d: %+v", seed, limit, ops)
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			t.Logf("%d acquisitions", total)
		})
	}
}

// The checker must notice where more is given than there is.
func TestSemaphoreModel(t *testing.T) {
	op := func(n int, call, ret int64) porcupine.Operation {
		return porcupine.Operation{ClientId: int(call), Input: leaseOp(n), Call: call, Return: ret}
	}
	for name, c := range map[string]struct {
		ops []porcupine.Operation
		ok  bool
	}{
		"within":             {[]porcupine.Operation{op(2, 1, 2), op(-2, 3, 4), op(2, 5, 6)}, true},
		"above":              {[]porcupine.Operation{op(2, 1, 2), op(1, 3, 4), op(-2, 5, 6)}, false},
		"returned meanwhile": {[]porcupine.Operation{op(2, 1, 2), op(1, 3, 6), op(-2, 4, 5)}, true},
		"lost":               {[]porcupine.Operation{op(2, 1, 2), op(-2, 3, int64(never)), op(2, 4, 5)}, true},
	} {
		require.Equal(t, c.ok, porcupine.CheckOperations(leaseModel(2), c.ops), name)
	}
}
