package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// voters are candidates of one election, and what is checked of them all along.
type voters struct {
	*suite
	mu      sync.Mutex
	all     []*voter
	changed chan struct{}
	latest  int64 // the greatest token
	holder  *voter
	two     bool
}

// voter is a candidate that takes part.
type voter struct {
	*changefeed.Election
	name   string
	store  changefeed.Store
	ended  chan error
	read   chan struct{}
	lead   *leaderelection.Leadership // the newest; guarded by voters.mu
	status leaderelection.Status
}

func (s *suite) voters(n int) *voters {
	s.Helper()
	v := &voters{suite: s, changed: make(chan struct{})}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // two that lead at one time are found whatever the case waits for
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
				v.mu.Lock()
				v.alone()
				v.mu.Unlock()
			}
		}
	}()
	s.Cleanup(func() {
		v.mu.Lock()
		all := v.all
		v.mu.Unlock()
		for _, c := range all {
			_ = c.Resign()
			<-c.ended
			<-c.read
		}
		close(stop)
		<-stopped
	})
	for i := range n {
		v.join(fmt.Sprint("candidate ", i))
	}
	return v
}

// join has another candidate take part.
func (v *voters) join(name string) *voter {
	v.Helper()
	c, err := v.candidate(name)
	if err != nil {
		v.Fatalf("NewElection: %v", err)
	}
	v.enter(c)
	return c
}

func (v *voters) candidate(name string) (*voter, error) {
	v.Helper()
	c := &voter{name: name, store: v.store(), ended: make(chan error, 1), read: make(chan struct{})}
	var err error
	c.Election, err = changefeed.NewElection(c.store, v.options(changefeed.WithID(name))...)
	return c, err
}

// options are those of the candidates. A lease is longer than four heartbeats, so that a machine
// that pauses for a second does not end a leadership.
func (v *voters) options(more ...changefeed.Option) []changefeed.Option {
	return append(more, changefeed.WithHeartbeat(v.Heartbeat), changefeed.WithElectionTimeout(5*v.Heartbeat, 6*v.Heartbeat))
}

func (v *voters) enter(c *voter) {
	v.mu.Lock()
	v.all = append(v.all, c)
	v.mu.Unlock()
	go func() { c.ended <- c.ElectLeader(); close(c.ended) }()
	go func() {
		defer close(c.read)
		for status := range c.Status() {
			v.receive(c, status)
		}
	}()
}

func (v *voters) receive(c *voter, status leaderelection.Status) {
	v.mu.Lock()
	defer v.mu.Unlock()
	c.status = status
	if l := status.Leadership; l != nil && l != c.lead {
		c.lead = l
		if l.Err() == nil {
			if l.Token() <= v.latest {
				v.Errorf("%s is leader with token %d, after token %d", c.name, l.Token(), v.latest)
			}
			v.latest, v.holder = l.Token(), c
		}
	}
	v.alone()
	close(v.changed)
	v.changed = make(chan struct{})
}

// alone reports two who lead; mu is held.
func (v *voters) alone() {
	var first *voter
	for _, c := range v.all {
		if c.lead == nil || c.lead.Err() != nil {
			continue
		}
		// The first one is asked again: its leadership may have ended since it was asked.
		if first != nil && first.lead.Err() == nil && !v.two {
			v.two = true
			v.Errorf("%s (token %d) and %s (token %d) are leaders at the same time", first.name, first.lead.Token(), c.name, c.lead.Token())
		}
		first = c
	}
}

// leader waits for one other than those that are named.
func (v *voters) leader(but ...*voter) *voter {
	v.Helper()
	var found *voter
	v.await("somebody leads", func() bool {
		for _, c := range v.all {
			if c.lead != nil && c.lead.Err() == nil {
				found = c
				for _, b := range but {
					if b == c {
						found = nil
					}
				}
			}
		}
		return found != nil
	})
	return found
}

// await waits for cond, which is called with mu held.
func (v *voters) await(what string, cond func() bool) {
	v.Helper()
	limit := time.After(v.limit())
	for {
		v.mu.Lock()
		ok, changed := cond(), v.changed
		v.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-time.After(5 * time.Millisecond):
		case <-limit:
			v.mu.Lock()
			defer v.mu.Unlock()
			text := ""
			for _, c := range v.all {
				text += fmt.Sprintf("\n\t%s: %v", c.name, c.status)
			}
			v.Fatalf("%s: not in time%s", what, text)
		}
	}
}

// limit is how long a case waits for a state of the election. The wait ends as soon as the state
// is reached, so a long limit costs time only if there is an error.
func (v *voters) limit() time.Duration { return 6*v.Patience + 20*v.Heartbeat }

// holding is for how many heartbeats a leader must lead: longer than a lease, so that heartbeats
// were acknowledged.
const holding = 5

// settled waits until a candidate has led for five heartbeats without interruption, and returns
// it. A leader may lose its leadership earlier, as happens when the machine is busy:
// then the wait begins again with the next one.
func (v *voters) settled() *voter {
	v.Helper()
	limit := time.After(v.limit())
	for {
		c := v.leader()
		v.mu.Lock()
		l := c.lead
		v.mu.Unlock()
		select {
		case <-l.Done():
		case <-limit:
			v.Fatalf("no candidate was leader for %v: the leadership of the last one, %s, ended with: %v", holding*v.Heartbeat, c.name, l.Err())
		case <-time.After(holding * v.Heartbeat):
			if l.Err() == nil {
				return c
			}
		}
	}
}

// token is that of the candidate's newest leadership.
func (v *voters) token(c *voter) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return c.lead.Token()
}

func (v *voters) resign(c *voter) {
	v.Helper()
	if err := c.Resign(); err != nil {
		v.Errorf("%s: Resign: %v", c.name, err)
	}
}
