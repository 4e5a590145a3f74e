// Package overlap tests from outside that no two leaders act at the same time: each leader
// notes in the store's own database when it acted first and last.
package overlap

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Members is the number of candidates.
const Members = 3

// World is a database, and the candidates' connections to it.
type World struct {
	// Store creates the store of a candidate, which connects through a separate network.
	Store func(member int) changefeed.Store
	// Cut stops everything that passes through a candidate's network, without a sign. Heal
	// ends that.
	Cut, Heal func(member int)
	// Restart kills the database and starts it again. It may be nil.
	Restart func()
	// Append adds a row to a list in the database, not through the candidates' networks. It is
	// called again if it fails, and may then have added the row already.
	Append func(row []byte) error
	// Rows returns the rows of the list.
	Rows func() [][]byte
}

const (
	// heartbeat is that of the candidates: half of it is enough for a request on a busy machine.
	heartbeat = 400 * time.Millisecond
	// limit is how long the test waits for a leader, or for the database.
	limit = 2 * time.Minute
)

// row is one leadership, by the clock of the one machine.
type row struct {
	Member     int
	Term       int64
	Begin, End time.Time
}

// deed is the first action of a leader.
type deed struct {
	member int
	term   int64
}

// Run cuts off the leader several times, waits for the next one, and checks what the leaders
// have noted. A candidate may lose its leadership without a fault, because the machine is busy:
// only a leader with a greater term than the last one's counts as the next.
func Run(t *testing.T, w World) {
	t.Helper()
	var all sync.WaitGroup
	deeds := make(chan deed, 1000) // more than there are leaderships
	var elections []*changefeed.Election
	for member := range Members {
		c, err := changefeed.NewElection(w.Store(member), changefeed.WithHeartbeat(heartbeat), changefeed.WithID(fmt.Sprint(member)))
		if err != nil {
			t.Fatal(err)
		}
		elections = append(elections, c)
		all.Go(func() { _ = c.ElectLeader() })
		all.Go(func() { act(t, w, member, c, deeds) })
	}
	defer all.Wait()
	defer func() {
		for _, c := range elections {
			_ = c.Resign()
		}
	}()
	leader := next(t, deeds, deed{member: -1})
	leaders := 1
	for range 4 {
		cut := leader.member
		w.Cut(cut)
		leader = next(t, deeds, leader)
		leaders++
		w.Heal(cut)
	}
	if w.Restart != nil {
		w.Restart()
		_ = elections[leader.member].Resign()
		next(t, deeds, leader)
		leaders++
	}
	for _, c := range elections {
		_ = c.Resign()
	}
	all.Wait()
	check(t, w.Rows(), leaders)
}

// next waits for a leader after d that is another candidate.
func next(t *testing.T, deeds <-chan deed, d deed) deed {
	t.Helper()
	end := time.After(limit)
	for {
		select {
		case now := <-deeds:
			if now.term > d.term && now.member != d.member {
				return now
			}
		case <-end:
			t.Fatalf("after candidate %d with term %d no other candidate leads", d.member, d.term)
		}
	}
}

// act acts in each leadership as often as it can, and notes the leadership when it is over.
func act(t *testing.T, w World, member int, c *changefeed.Election, deeds chan<- deed) {
	var last *leaderelection.Leadership
	for status := range c.Status() {
		l := status.Leadership
		if l == nil || l == last {
			continue
		}
		last = l
		r := row{Member: member, Term: l.Token()}
		for {
			now := time.Now() // It led at this time if it still leads afterwards.
			if l.Err() != nil {
				break
			}
			if r.End = now; r.Begin.IsZero() {
				r.Begin = now
				deeds <- deed{member, l.Token()}
			}
			time.Sleep(time.Millisecond)
		}
		if r.Begin.IsZero() {
			continue // The leadership was over before the first action.
		}
		if err := note(w, r); err != nil {
			t.Errorf("a leadership could not be noted: %v", err)
		}
	}
}

func note(w World, r row) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if err := w.Append(text); err == nil || time.Since(began) > limit {
			return err
		}
	}
}

func check(t *testing.T, texts [][]byte, leaders int) {
	t.Helper()
	var rows []row
	for _, text := range texts {
		var r row
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int { return a.Begin.Compare(b.Begin) })
	rows = slices.Compact(rows) // A row whose answer was lost is there twice.
	if len(rows) < leaders {
		t.Errorf("%d leaderships are noted, and there were %d at least", len(rows), leaders)
	}
	for i := 1; i < len(rows); i++ {
		if before, r := rows[i-1], rows[i]; r.Term <= before.Term || !r.Begin.After(before.End) {
			t.Errorf("%+v comes after %+v", r, before)
		}
	}
}
