package explore

// The candidates of a schedule, and when each of them may end.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
)

// link is a connection that candidates use.
type link struct {
	conn   *zk.Conn
	name   string
	closed bool
}

// candidate is one candidacy. mu guards what its goroutine tells.
type candidate struct {
	name string
	link *link

	mu       sync.Mutex
	election *leaderelection.Election
	session  int64    // in which it began
	watched  []string // own znodes and predecessors
	last     leaderelection.Status
	over     bool
	err      error
	resigned bool
}

func (w *world) excuseAll(l *link) {
	for _, c := range w.candidates {
		if c.link == l {
			w.excuse(c.id())
		}
	}
}

// choose takes one of the candidates that take part.
func (w *world) choose(n int) *candidate {
	living := w.living()
	if len(living) == 0 {
		return nil
	}
	return living[n%len(living)]
}

func (w *world) living() (found []*candidate) {
	for _, c := range w.candidates {
		c.mu.Lock()
		if !c.over && !c.resigned {
			found = append(found, c)
		}
		c.mu.Unlock()
	}
	return found
}

func (c *candidate) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.election == nil {
		return ""
	}
	return c.election.ID()
}

// connection returns one to join over.
func (w *world) connection(n int) *link {
	if w.shared {
		open := slices.DeleteFunc(slices.Clone(w.links), func(l *link) bool { return l.closed })
		if len(open) >= 2 {
			return open[n%len(open)]
		}
	}
	conn, _, err := w.ensemble.ConnectFrom(n%w.servers, w.timeout,
		zk.WithDialer(promises(w.ensemble.Dialer(), w.told)), zk.WithMaxBufferSize(64<<10)) // by default 1.5 MB, cleared each time
	if err != nil {
		w.violation("cannot connect: %v", err)
	}
	l := &link{conn: conn, name: fmt.Sprintf("connection %d", len(w.links))}
	w.links = append(w.links, l)
	return l
}

func (w *world) join(n int) {
	if len(w.living()) >= w.schedule.candidates {
		return
	}
	c := &candidate{name: fmt.Sprintf("c%d", len(w.candidates)), link: w.connection(n)}
	w.candidates = append(w.candidates, c)
	w.note("%s: joins over %s", c.name, c.link.name)
	w.busy.Go(func() { w.stand(c) })
}

// stand is the program of one candidate.
func (w *world) stand(c *candidate) {
	options := []leaderelection.Option{leaderelection.WithClientName(c.name), leaderelection.WithSessionTimeout(w.told)}
	if w.rejoin {
		options = append(options, leaderelection.WithRejoin())
	}
	if w.create {
		options = append(options, leaderelection.WithCreateNode())
	}
	if w.plain {
		options = append(options, leaderelection.WithNaming(leaderelection.Prefix("n_")))
	}
	e, err := leaderelection.NewElection(c.link.conn, node, options...)
	c.mu.Lock()
	if err != nil {
		c.over, c.err = true, err
		c.mu.Unlock()
		w.note("%s: cannot take part: %v", c.name, err)
		if !errors.Is(err, leaderelection.ErrUnreachable) && !errors.Is(err, leaderelection.ErrConnClosed) && !errors.Is(err, leaderelection.ErrNoElection) {
			w.violation("%s: NewElection: %v", c.name, err)
		}
		return
	}
	c.election, c.session = e, c.link.conn.SessionID()
	resigned := c.resigned
	c.mu.Unlock()
	if resigned {
		_ = e.Resign()
	}
	events := e.Events()
	w.busy.Go(func() { (&eventLog{w: w, c: c}).read(events) })
	returned := make(chan error, 1)
	go func() { returned <- e.ElectLeader() }()
	count := 0
	for s := range e.Status() {
		count++
		w.note("%s: %v", c.name, s)
		c.mu.Lock()
		if c.last.Err != nil {
			w.violation("%s: a status after the final one: %v", c.name, s)
		}
		c.last = s
		c.watched = append(c.watched, s.CandidateID, s.NowFollowing)
		c.mu.Unlock()
		if (s.Role == leaderelection.Leader) != (s.Leadership != nil) {
			w.violation("%s: role and leadership differ: %v", c.name, s)
		}
		if s.Leadership != nil {
			span := w.history.begin(c.name, s.CandidateID, s.Leadership)
			w.busy.Add(1)
			context.AfterFunc(s.Leadership.Context(), func() {
				w.end(span)
				w.note("%s: done: %v", c.name, s.Leadership.Err())
				w.busy.Done()
			})
			w.busy.Go(func() { w.lead(e, s.Leadership) })
		}
		if w.lazy && count%2 == 0 {
			time.Sleep(w.timeout / 5) // a reader that is busy with something else
		}
	}
	err = <-returned
	c.mu.Lock()
	c.over, c.err = true, err
	last := c.last
	c.mu.Unlock()
	w.note("%s: the candidacy is over: %v", c.name, err)
	if resigned && errors.Is(err, leaderelection.ErrCandidacyOver) {
		return // it resigned before it stood
	}
	if !errors.Is(last.Err, err) || (err == nil) != (last.Err == nil) {
		w.violation("%s: ElectLeader returned %v after the final status %v", c.name, err, last)
	}
	w.mayEnd(c, err)
}

// lead writes what only a leader may write: at once, and once more at a time at
// which it may have lost its leadership.
func (w *world) lead(e *leaderelection.Election, l *leaderelection.Leadership) {
	for range 2 {
		// Multi is bound to the candidate. One that rejoins may lead anew, and
		// this is done for an earlier leadership.
		if l.Err() != nil {
			return
		}
		written, err := e.Multi(&zk.SetDataRequest{Path: register, Data: strconv.AppendInt(nil, l.Token(), 10), Version: -1})
		if err == nil {
			w.wrote(l.Token(), written[0].Stat.Mzxid)
		}
		time.Sleep(w.timeout * 3 / 4)
	}
}

// mayEnd checks that there was a reason for the end of a candidacy.
func (w *world) mayEnd(c *candidate, err error) {
	c.mu.Lock()
	resigned := c.resigned
	c.mu.Unlock()
	ok := false
	switch {
	case err == nil:
		ok = resigned
	case errors.Is(err, leaderelection.ErrElectionOver):
		ok = w.ended
	case errors.Is(err, leaderelection.ErrElectionGone):
		ok = (w.ended || w.rebuilt && !w.create) && w.rejoin
	case errors.Is(err, leaderelection.ErrNoElection):
		ok = w.ended || w.rebuilt && !w.create // since NewElection was called
	case errors.Is(err, leaderelection.ErrCandidateDeleted):
		// Without an answer for a session timeout the reason of a znode's end
		// remains unknown, except to those who wait for ever.
		ok = w.isExcused(c.id()) || !w.rejoin && !w.hasNode(c.id())
	case errors.Is(err, leaderelection.ErrSessionExpired):
		ok = !w.rejoin
	case errors.Is(err, leaderelection.ErrConnClosed):
		ok = c.link.closed
	case errors.Is(err, leaderelection.ErrUnreachable):
		ok = !w.rejoin
	}
	if !ok {
		w.violation("%s: the candidacy ended for no reason: %v", c.name, err)
	}
}

func (w *world) resign(c *candidate) {
	w.note("%s: resigns", c.name)
	c.mu.Lock()
	c.resigned = true
	e := c.election
	c.mu.Unlock()
	if e == nil {
		return // it does when it takes part
	}
	w.busy.Go(func() {
		begin := time.Now()
		err := e.Resign()
		w.note("%s: has resigned: %v", c.name, err)
		if d := time.Since(begin); d > resignLimit {
			w.violation("%s: Resign took %v", c.name, d)
		}
		if err != nil && !errors.Is(err, leaderelection.ErrUnconfirmed) {
			w.violation("%s: Resign: %v", c.name, err)
		}
		if err == nil && w.hasNode(e.ID()) {
			w.violation("%s: Resign is confirmed, and %s is there", c.name, e.ID())
		}
	})
}
