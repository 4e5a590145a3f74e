package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Client is a store that connects to its server through a separate network.
type Client struct {
	Store changefeed.Store
	// Cut makes the network drop everything in both directions, without closing connections. Heal ends
	// that.
	Cut, Heal func()
}

const (
	partitionClients = 3
	// partitionHeartbeat is so long that a request takes less than half of it, even on a busy machine.
	partitionHeartbeat = 400 * time.Millisecond
	// partitionLimit is how long RunPartitions waits for a leader.
	partitionLimit = 2 * time.Minute
)

// RunPartitions tests that leaders which are cut off from the server have stopped before the
// next leader starts. Each of several candidates uses a client that connect creates. Each leader
// acts as often as it can, and checks its leadership after each action. RunPartitions cuts off
// one leader after the other, and requires that the periods in which they acted do not overlap
// and that their tokens increase. If restart is not nil, it kills the server and starts it
// again, and another candidate must become leader afterwards.
func RunPartitions(t testing.TB, connect func(t testing.TB) Client, restart func()) {
	t.Helper()
	p := &partitions{started: make(chan tenure, 1000)} // more than there are leaderships
	var running sync.WaitGroup
	clients := make([]Client, partitionClients)
	elections := make([]*changefeed.Election, partitionClients)
	for i := range clients {
		clients[i] = connect(t)
		e, err := changefeed.NewElection(clients[i].Store,
			changefeed.WithHeartbeat(partitionHeartbeat), changefeed.WithID(fmt.Sprint("candidate ", i)))
		if err != nil {
			t.Fatal(err)
		}
		elections[i] = e
		running.Go(func() { _ = e.ElectLeader() })
		running.Go(func() { p.actAsLeader(i, e) })
	}
	resignAll := func() {
		for _, e := range elections {
			_ = e.Resign()
		}
		running.Wait()
	}
	defer resignAll()
	leader := p.nextLeader(t, tenure{candidate: -1})
	leaders := 1
	for range 4 {
		cut := clients[leader.candidate]
		cut.Cut()
		leader = p.nextLeader(t, leader)
		leaders++
		cut.Heal()
	}
	if restart != nil {
		restart()
		_ = elections[leader.candidate].Resign()
		p.nextLeader(t, leader)
		leaders++
	}
	resignAll()
	for _, problem := range checkTenures(p.tenures, leaders) {
		t.Error(problem)
	}
}

// partitions records the actions of the candidates of RunPartitions.
type partitions struct {
	started chan tenure   // started receives each leadership when its leader acts first.
	actions atomic.Uint64 // actions is the number of actions of all leaders.

	mu      sync.Mutex
	tenures []tenure
}

// tenure is the part of a leadership in which the leader has acted. The actions of all leaders are numbered; first and
// last are the numbers of the leader's first and last action.
type tenure struct {
	candidate   int
	token       int64
	first, last uint64
}

// nextLeader waits for a tenure of another candidate than that of last, with a greater token. It ignores tenures of the
// same candidate, which may lose and regain its leadership without a fault if the machine is busy.
func (p *partitions) nextLeader(t testing.TB, last tenure) tenure {
	t.Helper()
	limit := time.After(partitionLimit)
	for {
		select {
		case next := <-p.started:
			if next.token > last.token && next.candidate != last.candidate {
				return next
			}
		case <-limit:
			t.Fatalf("after candidate %d with token %d no other candidate becomes leader", last.candidate, last.token)
		}
	}
}

// actAsLeader acts in each leadership of a candidate as often as it can, and records the leadership when
// it is over.
func (p *partitions) actAsLeader(candidate int, e *changefeed.Election) {
	var known *leaderelection.Leadership
	for status := range e.Status() {
		l := status.Leadership
		if l == nil || l == known {
			continue
		}
		known = l
		record := tenure{candidate: candidate, token: l.Token()}
		for {
			// Count the action before the check: a candidate that is still leader after the count was leader when
			// the action got its number.
			action := p.actions.Add(1)
			if l.Err() != nil {
				break
			}
			if record.last = action; record.first == 0 {
				record.first = action
				p.started <- record
			}
			time.Sleep(time.Millisecond)
		}
		if record.first == 0 {
			continue // Skip a leadership that was lost before the first action.
		}
		p.mu.Lock()
		p.tenures = append(p.tenures, record)
		p.mu.Unlock()
	}
}

// checkTenures returns a description of each problem: two tenures overlap, their tokens do not increase, or there are
// fewer tenures than least.
func checkTenures(tenures []tenure, least int) (problems []string) {
	slices.SortFunc(tenures, func(a, b tenure) int { return cmp.Compare(a.first, b.first) })
	if len(tenures) < least {
		problems = append(problems, fmt.Sprintf("%d leaderships were recorded, want at least %d", len(tenures), least))
	}
	for i := 1; i < len(tenures); i++ {
		previous, next := tenures[i-1], tenures[i]
		if next.token <= previous.token || next.first <= previous.last {
			problems = append(problems, fmt.Sprintf("leadership %+v overlaps with %+v, or has no greater token", next, previous))
		}
	}
	return problems
}
