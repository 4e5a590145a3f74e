package queue_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
)

// observedLeadership is one leadership as the test has observed it, from the delivery of the status until Done was
// closed. Times are relative to the start of the schedule.
type observedLeadership struct {
	who        string
	id         string
	token      int64
	from       time.Duration
	until      time.Duration
	over       bool
	leadership *leaderelection.Leadership
}

func (l *observedLeadership) String() string {
	return fmt.Sprintf("%s (token %d, %v to %v)", l.who, l.token, l.from, l.until)
}

// guardedWrite is a transaction that the servers have applied for a leader.
type guardedWrite struct{ zxid, token int64 }

// electionHistory records the leaderships of one schedule.
type electionHistory struct {
	*faultschedule.History

	mu          sync.Mutex
	leaderships []*observedLeadership
	// removals contains the znodes that were removed by others than their candidate, and the latest known time of
	// the removal. The leaderships of these znodes can overlap with others until the lease expires.
	removals map[string]time.Duration
	writes   []guardedWrite
	end      time.Duration // when the election was deleted; 0 if it still exists
}

func newElectionHistory(h *faultschedule.History) *electionHistory {
	return &electionHistory{History: h, removals: map[string]time.Duration{}}
}

// expectRemoval records that a znode will be removed by others than its candidate.
func (h *electionHistory) expectRemoval(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.removals[id]; !known && id != "" {
		h.removals[id] = h.Now()
	}
}

// setRemoved records that a znode whose removal is expected does not exist any more.
func (h *electionHistory) setRemoved(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removals[id] = h.Now()
}

func (h *electionHistory) isRemovalExpected(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.removals[id]
	return ok
}

func (h *electionHistory) beginLeadership(who, id string, l *leaderelection.Leadership) *observedLeadership {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := &observedLeadership{who: who, id: id, token: l.Token(), from: h.Now(), leadership: l}
	h.leaderships = append(h.leaderships, o)
	return o
}

func (h *electionHistory) endLeadership(l *observedLeadership) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.until, l.over = h.Now(), true
}

func (h *electionHistory) addWrite(token, zxid int64) {
	h.Note("written with token %d in transaction %d", token, zxid)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes = append(h.writes, guardedWrite{zxid, token})
}

// setEnd records the time of a transaction that writes the tombstone. The last such transaction deletes the
// election.
func (h *electionHistory) setEnd() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = h.Now()
}

// leaders returns the leaderships whose lease is valid at the time of the call.
func (h *electionHistory) leaders() (leaders []*observedLeadership) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.leaderships {
		if !l.over && l.leadership.Err() == nil {
			leaders = append(leaders, l)
		}
	}
	return leaders
}

// verify verifies the history of a schedule that is over. latency is the latency of a status and of a notification,
// and grace the longest time for which a leadership can continue after its znode was removed.
func (h *electionHistory) verify(latency, grace time.Duration) {
	h.mu.Lock()
	violations := slices.Concat(verifyEnd(h.leaderships, h.end, latency), verifyLeaderships(h.leaderships, h.removals, grace), verifyWrites(h.writes))
	h.mu.Unlock()
	for _, v := range violations {
		h.Violate("%s", v)
	}
}

// verifyLeaderships verifies that leaderships do not overlap and that tokens increase. A leadership whose znode was
// removed can overlap with the next leaderships for the duration grace.
func verifyLeaderships(leaderships []*observedLeadership, removals map[string]time.Duration, grace time.Duration) (violations []string) {
	for i, a := range leaderships {
		since, aRemoved := removals[a.id]
		if aRemoved && a.over && a.until > since+grace {
			violations = append(violations, fmt.Sprintf("%v was the leader for %v after its znode was removed", a, a.until-since))
		}
		for _, b := range leaderships[i+1:] {
			_, bRemoved := removals[b.id]
			from, until := max(a.from, b.from), min(a.until, b.until)
			if a.id != b.id && from < until && !aRemoved && !bRemoved {
				violations = append(violations, fmt.Sprintf("two leaders for %v: %v and %v", until-from, a, b))
			}
			if b.token < a.token && b.from > a.from && !aRemoved && !bRemoved {
				violations = append(violations, fmt.Sprintf("tokens do not increase: %v, then %v", a, b))
			}
			if (a.token == b.token) != (a.id == b.id) {
				violations = append(violations, fmt.Sprintf("%v and %v: znodes and tokens do not correspond", a, b))
			}
		}
	}
	return violations
}

// verifyEnd verifies that no candidate becomes the leader after the election was deleted at the time end. Between
// the creation of the tombstone and the deletion, the candidate at the head of the queue can become the leader,
// because it has waited for the confirmation of its lease.
func verifyEnd(leaderships []*observedLeadership, end, latency time.Duration) (violations []string) {
	if end == 0 {
		return nil
	}
	elected := map[string]bool{}
	for _, l := range leaderships {
		if l.from > end+latency && !elected[l.id] {
			violations = append(violations, fmt.Sprintf("%v was elected after the end at %v", l, end))
		}
		elected[l.id] = true
	}
	return violations
}

// verifyWrites verifies that the servers have applied no write of a leader after a write of its successor, even if
// the znode of the leader was removed.
func verifyWrites(writes []guardedWrite) (violations []string) {
	writes = slices.SortedFunc(slices.Values(writes), func(a, b guardedWrite) int { return cmp.Compare(a.zxid, b.zxid) })
	for i := 1; i < len(writes); i++ {
		if a, b := writes[i-1], writes[i]; b.token < a.token {
			violations = append(violations, fmt.Sprintf("token %d has written after token %d", b.token, a.token))
		}
	}
	return violations
}

// TestVerifyLeaderships_FindsTwoLeaders checks that verifyLeaderships finds leaderships that overlap and tokens
// that do not increase.
func TestVerifyLeaderships_FindsTwoLeaders(t *testing.T) {
	ms := time.Millisecond
	leadership := func(who string, token int64, from, until time.Duration) *observedLeadership {
		return &observedLeadership{who: who, id: who, token: token, from: from, until: until, over: true}
	}
	for name, c := range map[string]struct {
		leaderships []*observedLeadership
		removals    map[string]time.Duration
		violations  int
	}{
		"one after the other":             {[]*observedLeadership{leadership("a", 1, 0, 5*ms), leadership("b", 2, 5*ms, 9*ms)}, nil, 0},
		"an overlap":                      {[]*observedLeadership{leadership("a", 1, 0, 6*ms), leadership("b", 2, 5*ms, 9*ms)}, nil, 1},
		"an overlap of three":             {[]*observedLeadership{leadership("a", 1, 0, 9*ms), leadership("b", 2, 5*ms, 9*ms), leadership("c", 3, 6*ms, 9*ms)}, nil, 3},
		"one within the other":            {[]*observedLeadership{leadership("a", 1, 0, 9*ms), leadership("b", 2, 5*ms, 6*ms)}, nil, 1},
		"the same candidate again":        {[]*observedLeadership{leadership("a", 1, 0, 5*ms), leadership("a", 1, 6*ms, 9*ms)}, nil, 0},
		"a decreasing token":              {[]*observedLeadership{leadership("a", 2, 0, 5*ms), leadership("b", 1, 6*ms, 9*ms)}, nil, 1},
		"two candidates, one token":       {[]*observedLeadership{leadership("a", 1, 0, 5*ms), leadership("b", 1, 6*ms, 9*ms)}, nil, 1},
		"znode removed":                   {[]*observedLeadership{leadership("a", 1, 0, 6*ms), leadership("b", 2, 5*ms, 9*ms)}, map[string]time.Duration{"a": 4 * ms}, 0},
		"znode removed, overlap too long": {[]*observedLeadership{leadership("a", 1, 0, 8*ms), leadership("b", 2, 5*ms, 9*ms)}, map[string]time.Duration{"a": 4 * ms}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			require.Len(t, verifyLeaderships(c.leaderships, c.removals, 2*ms), c.violations)
		})
	}
}

// TestVerifyWrites_FindsFormerLeader checks that verifyWrites finds a write of a former leader after a write of its
// successor.
func TestVerifyWrites_FindsFormerLeader(t *testing.T) {
	require.Empty(t, verifyWrites([]guardedWrite{{5, 2}, {1, 1}, {6, 2}, {9, 3}}))
	require.Len(t, verifyWrites([]guardedWrite{{1, 1}, {5, 2}, {6, 1}, {9, 3}}), 1)
}

// TestVerifyEnd_FindsLeaderOfDeletedElection checks that verifyEnd finds a candidate that becomes the leader after
// the deletion of the election.
func TestVerifyEnd_FindsLeaderOfDeletedElection(t *testing.T) {
	a, b := &observedLeadership{id: "a", from: time.Second}, &observedLeadership{id: "b", from: 3 * time.Second}
	again := &observedLeadership{id: "a", from: 4 * time.Second}
	require.Empty(t, verifyEnd([]*observedLeadership{a, b, again}, 0, 0))
	require.Empty(t, verifyEnd([]*observedLeadership{a, again}, 2*time.Second, 0))
	require.Len(t, verifyEnd([]*observedLeadership{a, b, again}, 2*time.Second, 0), 1)
}
