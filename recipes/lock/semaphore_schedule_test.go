package lock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// leaseOp is a change of the number of granted leases: positive for an acquisition, negative for a
// release.
type leaseOp int

// leaseModel is the model of a counter of leases that never exceeds the limit.
func leaseModel(limit int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, _ any) (bool, any) {
			next := state.(int) + int(input.(leaseOp))
			return next <= limit && next >= 0, next
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+d", input) },
	}
}

// semaphoreSchedule is a schedule of programs that acquire and release leases.
type semaphoreSchedule struct {
	schedule
	limit   int // the largest number of leases that the semaphore allows during the test
	changes bool
	options []Option
	grants  atomic.Int64
	// requested contains the paths of the contenders whose release was requested.
	requested sync.Map
	requests  atomic.Int64
}

// newSemaphoreSchedule returns a schedule without latency, so that each contender has learned that it has its
// turn as soon as all goroutines are blocked.
func newSemaphoreSchedule(seed uint64, options []Option) *semaphoreSchedule {
	s := &semaphoreSchedule{schedule: newSchedule(seed), options: options}
	s.clients += 2
	s.Latency = 0
	s.limit = 1 + int(seed)%4
	if s.changes = len(options) != 1 && seed%3 == 0; s.changes {
		s.limit = 5
	}
	return s
}

func (s *semaphoreSchedule) String() string {
	return fmt.Sprintf("%v, limit %d, limit changes %v", s.schedule, s.limit, s.changes)
}

func (s *semaphoreSchedule) semaphore(c *client) *Semaphore {
	sem, err := NewSemaphore(c.conn, node, s.limit, append([]Option{recipes.WithSessionTimeout(c.Timeout)}, s.options...)...)
	if err != nil {
		c.Violate("client %d: %v", c.id, err)
	}
	return sem
}

// contend repeatedly acquires and releases leases. After all faults, it acquires leases once more, which
// must succeed.
func (s *semaphoreSchedule) contend(c *client) {
	sem := s.semaphore(c)
	for {
		last := c.over.Load()
		if s.changes && c.r.IntN(5) == 0 {
			_ = sem.SetLimit(context.Background(), 2+c.r.IntN(4))
		}
		if c.r.IntN(4) == 0 {
			s.requestRandomRelease(c, sem)
		}
		n := 1 + c.r.IntN(min(2, s.limit))
		ctx, cancel := c.callContext()
		acquire := sem.Acquire
		switch {
		case last:
			ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
		case c.r.IntN(5) == 0:
			acquire = sem.TryAcquire
		}
		called, before := c.now(), c.conn.SessionID()
		h, err := acquire(ctx, n)
		switch {
		case err == nil:
			s.grants.Add(1)
			over := c.recordHold(node, h, leaseOp(n), leaseOp(-n), called, before, c.conn.SessionID())
			c.pauseRandomly(h.Context())
			over()
		case last || !errors.Is(err, ErrOverLimit):
			c.requireExpectedFailure(err)
		}
		cancel()
		if last && err == nil {
			return
		}
		c.pauseRandomly(context.Background())
	}
}

// requestRandomRelease requests that a random contender of the semaphore releases its leases.
func (s *semaphoreSchedule) requestRandomRelease(c *client, sem *Semaphore) {
	ctx, cancel := c.callContext()
	defer cancel()
	all, err := sem.Contenders(ctx)
	if err != nil || len(all) == 0 {
		return
	}
	one := all[c.r.IntN(len(all))]
	if sem.RequestRelease(ctx, one) == nil {
		s.requested.Store(one.Path, true)
		s.requests.Add(1)
	}
}

// requireRequestsRemain verifies that no contender has erased a request to release.
func (s *semaphoreSchedule) requireRequestsRemain(f *scheduleRun) {
	s.requested.Range(func(path, _ any) bool {
		data, _, err := f.operator.Get(path.(string))
		if err == nil && string(data) != releaseRequest {
			f.Violate("the request to release at %s was erased: %q", path, data)
		}
		return true
	})
}

// requireAllAdmitted verifies that all contenders whose leases are within the limit have acquired them.
func (s *semaphoreSchedule) requireAllAdmitted(f *scheduleRun) {
	s.requireRequestsRemain(f)
	f.Advance(f.Timeout + 2*time.Second) // wait until isolated sessions have expired
	s.requireRequestsRemain(f)
	children, _, err := f.operator.Children(node)
	if err != nil {
		f.Violate("%v", err)
	}
	contenders, _, _ := contender.Order(children, "")
	limit, _, stored := storedLimit(children)
	if !stored {
		limit = s.limit
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	held := map[string]bool{}
	for h := range f.holds {
		held[path.Base(h.Path())] = h.Err() == nil
	}
	taken := int64(0)
	for _, name := range contenders {
		if !contender.Recognized(name) {
			continue // the child is the record of a SetLimit, whose random name can end in ten digits
		}
		if taken += leasesOf([]string{name}); taken > int64(limit) {
			return
		}
		if !held[name] {
			f.Violate("the leases of %s are within the limit, and Acquire has not returned\n%s", name, f.Ensemble.Tree())
		}
	}
}

// runSemaphoreSchedules runs schedules, and checks their histories.
func runSemaphoreSchedules(t *testing.T, count int, options []Option) {
	var total, requests atomic.Int64
	faultschedule.Run(t, count, nil, func(t *testing.T, seed uint64, verbose bool) (fmt.Stringer, *faultschedule.History) {
		s := newSemaphoreSchedule(seed, options)
		healed := s.requireAllAdmitted
		if options != nil {
			healed = nil // requireAllAdmitted knows only the queue of this library's protocol
		}
		f := runSchedule(t, s.schedule, s.contend, verbose, healed)
		f.requireLinearizable(node, leaseModel(s.limit))
		total.Add(s.grants.Load())
		requests.Add(s.requests.Load())
		return s, f.History
	})
	t.Logf("%d acquisitions, %d requests to release", total.Load(), requests.Load())
	if !faultschedule.Single() {
		runs := int64(bubble.Runs(count))
		require.Greater(t, requests.Load(), runs)
		require.Greater(t, total.Load(), 5*runs, "the schedules acquire too few leases")
	}
}

// TestSemaphoreSchedules_GrantNoExcessLeases checks that, under random faults, the leases do not exceed the
// limit and each client acquires its leases after some time.
func TestSemaphoreSchedules_GrantNoExcessLeases(t *testing.T) { runSemaphoreSchedules(t, 80, nil) }

// TestSemaphoreSchedules_GrantNoExcessLeasesOfOtherLibraries is TestSemaphoreSchedules_GrantNoExcessLeases with
// the protocols of Curator and kazoo.
func TestSemaphoreSchedules_GrantNoExcessLeasesOfOtherLibraries(t *testing.T) {
	for name, layout := range otherLayouts {
		t.Run(name, func(t *testing.T) { runSemaphoreSchedules(t, 20, []Option{layout}) })
	}
}

// TestSemaphoreSchedules_GrantNoExcessLeasesWithSharedCount is TestSemaphoreSchedules_GrantNoExcessLeases with
// a limit that is stored in a SharedCount.
func TestSemaphoreSchedules_GrantNoExcessLeasesWithSharedCount(t *testing.T) {
	runSemaphoreSchedules(t, 30, []Option{WithCuratorLayout(), WithSharedCount("/limit")})
}

// TestSemaphoreSchedules_ModelDetectsExcessLeases checks that the model rejects a history in which leases
// exceed the limit.
func TestSemaphoreSchedules_ModelDetectsExcessLeases(t *testing.T) {
	op := func(n int, call, ret int64) porcupine.Operation { return newOperation(leaseOp(n), call, ret) }
	requireLegal(t, leaseModel(2), op(2, 1, 2), op(-2, 3, 4), op(2, 5, 6))
	requireIllegal(t, leaseModel(2), op(2, 1, 2), op(1, 3, 4), op(-2, 5, 6))
	// The release overlaps the second acquisition.
	requireLegal(t, leaseModel(2), op(2, 1, 2), op(1, 3, 6), op(-2, 4, 5))
	requireLegal(t, leaseModel(2), op(2, 1, 2), op(-2, 3, int64(never)), op(2, 4, 5))
}
