package changefeed_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

// period is the period of Prefer in these tests.
const period = 10 * time.Second

// priorityOf returns the ID of a candidate, which is a number, as its priority.
func priorityOf(c leaderelection.CandidateInfo) int {
	n, _ := strconv.Atoi(c.ID)
	return n
}

// startPreferring lets a candidate take over from leaders of lower priority, until stop is called.
func (c *candidate) startPreferring() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- changefeed.NewQueue(c.Election).Prefer(ctx, c, priorityOf, period) }()
	return func() {
		cancel()
		require.ErrorIs(c.h, <-ended, context.Canceled)
	}
}

// joinAndPrefer starts a candidate that takes over from leaders of lower priority, until stop is
// called.
func (h *harness) joinAndPrefer(id string) (c *candidate, stop func()) {
	h.Helper()
	c = h.join(id)
	return c, c.startPreferring()
}

// TestQueue_PreferMakesHighestPriorityLead checks that the candidate with the highest priority leads after
// some time, that a leader is not replaced before it has led for a period, and that a leader with the highest
// priority is not replaced.
func TestQueue_PreferMakesHighestPriorityLead(t *testing.T) {
	runInBubble(t, func(h *harness) {
		one := h.joinAndLead("1")
		defer one.startPreferring()()
		began := time.Now()
		var others []*candidate
		for _, id := range []string{"2", "3"} {
			c, stop := h.joinAndPrefer(id)
			defer stop()
			others = append(others, c)
		}
		h.passUntil(func() bool { return h.leader() != nil && h.leader() != one })
		require.GreaterOrEqual(h, time.Since(began), period)
		require.Less(h, time.Since(began), 2*period)
		h.passTime(2 * period)
		best := others[1]
		require.Same(h, best, h.leader())
		token := best.token()
		h.passTime(20 * period)
		require.Equal(h, token, best.token(), "the best leader was replaced")

		require.NoError(h, best.Resign())
		h.passTime(3 * period)
		require.Same(h, others[0], h.leader())
	})
}

// TestQueue_PreferWaitsAgainAfterNewLeadership checks that Prefer does not replace a leader whose leadership
// has lasted for less than a period, even if a candidate with the same ID has led before.
func TestQueue_PreferWaitsAgainAfterNewLeadership(t *testing.T) {
	runInBubble(t, func(h *harness) {
		one := h.joinAndLead("1")
		two, stop := h.joinAndPrefer("2")
		defer stop()
		h.passUntil(two.isLeader)
		h.passTime(period / 20) // shorter than the interval, period/4, at which Prefer reads the record
		for range 5 {
			ended := make(chan error, 1)
			go func() { ended <- changefeed.Transfer(h.Context(), h.table.Store("election"), one.id) }()
			require.NoError(h, <-ended)
			began := time.Now()
			h.passUntil(two.isLeader)
			require.GreaterOrEqual(h, time.Since(began), period)
			h.passTime(period / 20)
		}
	})
}

// TestQueue_PreferRequestsNothingWithoutFeed checks that a candidate that could not lead, because its feed is
// broken, does not request the leadership: there would be no leader for an election timeout, in each period.
func TestQueue_PreferRequestsNothingWithoutFeed(t *testing.T) {
	runInBubble(t, func(h *harness) {
		one := h.joinAndLead("1")
		token := one.token()
		two := h.newCandidate("2")
		var works atomic.Bool
		s := &storeFuncs{Store: two.store.Store}
		s.subscribe = func(ctx context.Context) (changefeed.Feed, error) {
			if works.Load() {
				return s.Store.Subscribe(ctx)
			}
			return nil, errBroken
		}
		two.store.Store = s
		two.start()
		defer two.startPreferring()()
		h.passTime(10 * period)
		require.Equal(h, token, one.token())
		works.Store(true)
		h.passUntil(two.isLeader)
	})
}

// TestQueue_RequestReplacesOnlyGivenLeader checks that a request replaces only the given leader, and not
// another leader or the target of a transfer.
func TestQueue_RequestReplacesOnlyGivenLeader(t *testing.T) {
	runInBubble(t, func(h *harness) {
		one := h.joinAndLead("1")
		token := one.token()
		two := h.join("2")
		queue := changefeed.NewQueue(two.Election)
		h.passTime(5 * time.Second)
		observe := func() (n int) {
			candidates, err := queue.Candidates(h.Context())
			require.NoError(h, err)
			return len(candidates)
		}
		require.Equal(h, 2, observe())
		require.ErrorIs(h, queue.Request(h.Context(), "3"), changefeed.ErrNotTransferred)
		require.Equal(h, token, one.token())
		h.transfer(two)
		h.transfer(one)
		synctest.Wait()
		token = one.token()
		require.ErrorIs(h, queue.Request(h.Context(), "1"), changefeed.ErrNotTransferred, "candidate 1 leads with another token than Candidates has returned")
		require.Equal(h, token, one.token())

		require.Equal(h, 2, observe())
		one.network.Cut() // the leader does not notice the transfer
		ended := make(chan error, 1)
		go func() { ended <- changefeed.Transfer(h.Context(), h.table.Store("election"), "another") }()
		synctest.Wait()
		require.Equal(h, 1, observe(), "candidate 2 is listed although a transfer is in progress")
		require.ErrorIs(h, queue.Request(h.Context(), "1"), changefeed.ErrNotTransferred)
		require.ErrorIs(h, <-ended, changefeed.ErrNotTransferred)
		require.Same(h, two, h.awaitLeader())
	})
}

// TestQueue_ContainsCandidatesThatCanTakeOver checks that the queue contains the leader and exactly the
// candidates that can take over, and that Candidates returns no transient error, which would end
// Prefer.
func TestQueue_ContainsCandidatesThatCanTakeOver(t *testing.T) {
	runInBubble(t, func(h *harness) {
		two := h.newCandidate("2")
		queue := changefeed.NewQueue(two.Election)
		ids := func() (ids []string) {
			candidates, err := queue.Candidates(h.Context())
			require.NoError(h, err)
			for _, c := range candidates {
				ids = append(ids, c.ID)
			}
			return ids
		}
		require.Empty(h, ids(), "there is no leader")
		one := h.joinAndLead("1")
		require.Equal(h, []string{"1"}, ids(), "candidate 2 has not called ElectLeader yet")
		two.start()
		synctest.Wait()
		require.Equal(h, []string{"1", "2"}, ids())
		require.NoError(h, queue.Transfer(h.Context(), "2"))
		h.passUntil(two.isLeader)
		require.Equal(h, []string{"2"}, ids())
		h.transfer(one)
		synctest.Wait()
		require.Equal(h, []string{"1", "2"}, ids())

		heal := two.network.Cut()
		ctx, cancel := context.WithTimeout(h.Context(), 10*time.Second)
		_, err := queue.Candidates(ctx)
		require.ErrorIs(h, err, leaderelection.ErrUnreachable)
		require.ErrorIs(h, queue.Request(ctx, "1"), context.DeadlineExceeded)
		cancel()
		heal()
		require.NoError(h, two.Resign())
		require.Equal(h, []string{"1"}, ids())
		require.NoError(h, changefeed.DeleteElection(h.table.Store("election")))
		require.ErrorIs(h, changefeed.NewQueue(two.Election).Prefer(h.Context(), two, priorityOf, period), leaderelection.ErrElectionOver)
	})
}

// transferRecord records when transfers of the leadership were written in a simulation.
type transferRecord struct {
	mu sync.Mutex
	at []time.Time
}

// transferRecordingStore is a store that records the transfers that are written to it.
type transferRecordingStore struct {
	changefeed.Store
	n *transferRecord
}

func (s *transferRecordingStore) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	r, err := s.Store.Heartbeat(ctx, prev, next)
	if err == nil && prev.Nominee == "" && next.Nominee != "" {
		s.n.mu.Lock()
		defer s.n.mu.Unlock()
		s.n.at = append(s.n.at, time.Now())
	}
	return r, err
}

// TestQueue_PreferWithstandsFaultsInSimulation runs elections with faults in which each candidate prefers
// itself by its priority. There must be at most one leader at a time, and at most one request for the
// leadership in a period. When the faults are over, the candidate with the highest priority must lead and must
// not be replaced.
func TestQueue_PreferWithstandsFaultsInSimulation(t *testing.T) {
	requests := 0
	for seed := uint64(1); seed <= max(10, *seeds/10); seed++ {
		synctest.Test(t, func(t *testing.T) { requests += simulatePreference(t, seed) })
	}
	require.Positive(t, requests)
	t.Logf("%d requests", requests)
}

func simulatePreference(t *testing.T, seed uint64) (requests int) {
	s := newSimulation(seed, nil)
	s.losses = false
	n := &transferRecord{}
	ctx, cancel := context.WithCancel(context.Background())
	var preferring sync.WaitGroup
	members := make([]*member, 4)
	for i := range members {
		m := &member{
			simulation: s, name: fmt.Sprint(i), clockRate: 0.935 + 0.13*s.random.Float64(),
			network: storetest.NewFaulty(&transferRecordingStore{s.table.Store("election"), n}, s.random.Uint64()),
		}
		members[i] = m
		m.join(t)
		preferring.Go(func() {
			assert.ErrorIs(t, changefeed.NewQueue(m.current()).Prefer(ctx, m.current(), priorityOf, period), context.Canceled)
		})
	}
	s.injectPartitions(members)
	time.Sleep(8 * period)
	best := members[0].current()
	// Let the candidates join again: a candidate that has lost several claims yields to the others until it leads.
	for _, m := range members[1:] {
		if changefeed.Ready(m.current()) {
			best = m.current()
		}
	}
	leadership := best.Current().Leadership
	require.NotNil(t, leadership, "seed %d: the best candidate does not lead", seed)
	time.Sleep(10 * period)
	require.Same(t, leadership, best.Current().Leadership, "seed %d: the best candidate was replaced", seed)
	require.Empty(t, s.violations, "seed %d", seed)
	cancel()
	preferring.Wait()
	for _, m := range members {
		require.NoError(t, m.current().Resign())
		m.running.Wait()
		require.NoError(t, m.network.Close())
	}
	for i, at := range n.at[min(1, len(n.at)):] {
		require.GreaterOrEqual(t, at.Sub(n.at[i]), period, "seed %d", seed)
	}
	return len(n.at)
}

// injectPartitions cuts off members, and delays and loses requests, for simulatedTime.
func (s *simulation) injectPartitions(members []*member) {
	for end := s.begin.Add(simulatedTime); time.Now().Before(end); {
		m := members[s.random.IntN(len(members))]
		heal := func() {}
		if s.random.IntN(2) == 0 {
			heal = m.network.Cut()
		} else {
			m.network.Set(s.randomFaults())
		}
		time.Sleep(time.Duration(s.random.Int64N(int64(period))))
		heal()
		m.network.Set(storetest.Faults{})
	}
}
