package resign_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/resign"
)

func priorityOf(c leaderelection.CandidateInfo) int {
	n, _ := strconv.Atoi(c.Value)
	return n
}

// currentCandidate is the newest candidate of an elector.
type currentCandidate struct {
	mu sync.Mutex
	*leaderelection.Election
}

func (c *currentCandidate) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Election == nil {
		return ""
	}
	return c.Election.ID()
}

// startProgram starts an elector whose candidates have the given priority, and a call of
// Prefer. Both run until stop is called.
func startProgram(h *bubble.Test, priority int, leads func(priority int)) (stop func()) {
	conn := h.Connect()
	ctx, cancel := context.WithCancel(context.Background())
	c := &currentCandidate{}
	e := &elector.Elector{
		NewCandidate: func(context.Context) (leaderelection.Candidate, error) {
			election, err := leaderelection.NewElection(conn, node, leaderelection.WithCreateNode(), leaderelection.WithRejoin(),
				leaderelection.WithValue(strconv.Itoa(priority)))
			c.mu.Lock()
			defer c.mu.Unlock()
			c.Election = election
			return election, err
		},
		Work: func(ctx context.Context, _ *leaderelection.Leadership) error {
			leads(priority)
			<-ctx.Done()
			return nil
		},
	}
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(ctx) })
	running.Go(func() {
		require.ErrorIs(h, resign.NewQueue(conn, node).Prefer(ctx, c, priorityOf, time.Minute), context.Canceled)
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// TestQueue_PreferMakesHighestPriorityLead checks that the candidate with the highest priority leads after a
// period, that a leader is replaced only once, and not earlier, and that the next best candidate leads after
// it has left.
func TestQueue_PreferMakesHighestPriorityLead(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		var mu sync.Mutex
		var leaders []int
		leads := func(priority int) {
			mu.Lock()
			defer mu.Unlock()
			leaders = append(leaders, priority)
		}
		expect := func(want ...int) {
			h.Helper()
			mu.Lock()
			defer mu.Unlock()
			require.Equal(h, want, leaders)
		}
		var stops []func()
		for _, priority := range []int{1, 1, 3, 2} {
			stops = append(stops, startProgram(h, priority, leads))
			bubble.Advance(time.Second)
		}
		bubble.Advance(50 * time.Second)
		expect(1)
		bubble.Advance(time.Minute)
		expect(1, 3)
		bubble.Advance(15 * time.Minute)
		expect(1, 3)
		stops[2]() // the next in the queue may have the lowest priority; Prefer must then replace it
		bubble.Advance(3 * time.Minute)
		mu.Lock()
		require.Equal(h, 2, leaders[len(leaders)-1])
		n := len(leaders)
		mu.Unlock()
		bubble.Advance(15 * time.Minute)
		mu.Lock()
		require.Len(h, leaders, n)
		mu.Unlock()
		for _, i := range []int{0, 1, 3} {
			stops[i]()
		}
	})
}

// TestQueue_PreferReturnsPermanentErrors checks that Prefer returns ErrInvalid for invalid arguments, and
// returns an error of Candidates that is not temporary.
func TestQueue_PreferReturnsPermanentErrors(t *testing.T) {
	failure := errors.New("failure")
	q := resign.Queue{Candidates: func(context.Context) ([]leaderelection.CandidateInfo, error) { return nil, failure }}
	require.ErrorIs(t, q.Prefer(t.Context(), &currentCandidate{}, priorityOf, time.Minute), failure)
	require.ErrorIs(t, q.Prefer(t.Context(), &currentCandidate{}, priorityOf, 0), leaderelection.ErrInvalid)
	require.ErrorIs(t, q.Prefer(t.Context(), nil, priorityOf, time.Minute), leaderelection.ErrInvalid)
	require.ErrorIs(t, q.Prefer(t.Context(), &currentCandidate{}, nil, time.Minute), leaderelection.ErrInvalid)
}

// TestQueue_PreferSparesNewLeader checks that Prefer does not request the resignation of a candidate that has
// become the leader after Prefer has decided to replace the previous leader.
func TestQueue_PreferSparesNewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period = time.Minute
		// Only the goroutine of Prefer uses the following variables.
		leader, lists := leaderelection.CandidateInfo{ID: "a", Token: 1}, 0
		requests := make(chan string, 1)
		q := resign.Queue{
			Candidates: func(context.Context) ([]leaderelection.CandidateInfo, error) {
				if lists++; lists == 6 { // the fifth list has shown that the leadership has lasted for the period
					leader = leaderelection.CandidateInfo{ID: "b", Token: 2}
				}
				return []leaderelection.CandidateInfo{leader, {ID: "c", Value: "1"}}, nil
			},
			Request: func(_ context.Context, id string) error {
				requests <- id
				return zk.ErrNoAuth
			},
		}
		began := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- q.Prefer(t.Context(), fixedID("c"), priorityOf, period) }()
		require.Equal(t, "b", <-requests)
		require.Equal(t, 9*period/4, time.Since(began), "a period after the seventh list, the first one of Prefer with the leader b")
		require.ErrorIs(t, <-ended, zk.ErrNoAuth)
	})
}

// fixedID is a candidate whose ID is the string.
type fixedID string

func (id fixedID) ID() string { return string(id) }
