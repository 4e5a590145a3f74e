// Package overlap looks at leaders from outside: each writes down, in the store's own
// database, from when till when it acted, and nobody may have acted meanwhile.
package overlap

import (
	"encoding/json"
	"fmt"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Members is how many candidates take part.
const Members = 3

// World is a database, and the ways to it.
type World struct {
	// Store makes the store of a candidate, which has a network of its own.
	Store func(member int) changefeed.Store
	// Cut stops all that goes over a candidate's network, without a sign. Heal ends that.
	Cut, Heal func(member int)
	// Append writes a row to a list in the database, past the candidates' networks.
	Append func(row []byte) error
	// Rows are those that were written.
	Rows func() [][]byte
	// Heartbeat is that of the election.
	Heartbeat time.Duration
}

// row is one leadership, by the clock of the one machine.
type row struct {
	Member     int
	Term       int64
	Begin, End time.Time
}

// Run cuts off the leader several times, waits for the next, and looks at what was written.
func Run(t *testing.T, w World) {
	t.Helper()
	var all sync.WaitGroup
	leaders := make(chan int, 1000)
	var elections []*changefeed.Election
	for member := range Members {
		c, err := changefeed.NewElection(w.Store(member), changefeed.WithHeartbeat(w.Heartbeat), changefeed.WithID(fmt.Sprint(member)))
		if err != nil {
			t.Fatal(err)
		}
		elections = append(elections, c)
		all.Go(func() { _ = c.ElectLeader() })
		all.Go(func() { act(t, w, member, c, leaders) })
	}
	defer all.Wait()
	defer func() {
		for _, c := range elections {
			_ = c.Resign()
		}
	}()
	cut := -1
	for range 4 {
		leader := next(t, leaders, cut)
		if cut >= 0 {
			w.Heal(cut)
		}
		cut = leader
		w.Cut(cut)
	}
	next(t, leaders, cut)
	w.Heal(cut)
	for _, c := range elections {
		_ = c.Resign()
	}
	all.Wait()
	check(t, w.Rows())
}

// next waits for a leader other than the one that is cut off.
func next(t *testing.T, leaders <-chan int, cut int) int {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case leader := <-leaders:
			if leader != cut {
				return leader
			}
		case <-limit:
			t.Fatal("nobody leads")
		}
	}
}

// act writes down each leadership when it is over.
func act(t *testing.T, w World, member int, c *changefeed.Election, leaders chan<- int) {
	for status := range c.Status() {
		l := status.Leadership
		if status.Role != leaderelection.Leader || l.Err() != nil {
			continue
		}
		r := row{Member: member, Term: l.Token(), Begin: time.Now()}
		leaders <- member
		r.End = r.Begin
		for {
			now := time.Now()
			if l.Err() != nil {
				break
			}
			r.End = now // it led then, as the look after it shows
			time.Sleep(time.Millisecond)
		}
		text, err := json.Marshal(r)
		if err == nil {
			err = w.Append(text)
		}
		if err != nil {
			t.Errorf("a leadership could not be written down: %v", err)
		}
	}
}

func check(t *testing.T, texts [][]byte) {
	t.Helper()
	var rows []row
	for _, text := range texts {
		var r row
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	if len(rows) < 5 {
		t.Errorf("there were %d leaderships only", len(rows))
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i].Begin.Before(rows[j].Begin) })
	for i := 1; i < len(rows); i++ {
		if before, r := rows[i-1], rows[i]; r.Term <= before.Term || !r.Begin.After(before.End) {
			t.Errorf("%+v comes after %+v", r, before)
		}
	}
}
