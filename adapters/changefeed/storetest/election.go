package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// RunElection holds elections on the stores, each case as a test of its own. Each
// candidate has a store of its own.
func RunElection(t *testing.T, f Factory, opts ...Option) { run(t, f, opts, ElectionCases()) }

// ElectionCases are the parts of [RunElection].
func ElectionCases() []Case {
	return []Case{
		{"FirstLeader", firstLeader},
		{"TogetherAtFirst", togetherAtFirst},
		{"ResignHandsOver", resignHandsOver},
		{"Nominee", nominee},
		{"EndAndRestart", endAndRestart},
		{"RecordLost", recordLost},
		{"StoreCloses", storeCloses},
		{"RestartOfTheServer", restartOfTheServer},
	}
}

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
	c.Election, err = changefeed.NewElection(c.store, changefeed.WithHeartbeat(v.Heartbeat), changefeed.WithID(name))
	return c, err
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
				v.Errorf("%s leads with token %d, which comes after %d", c.name, l.Token(), v.latest)
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
		if first != nil && !v.two {
			v.two = true
			v.Errorf("%s (token %d) and %s (token %d) lead at one time", first.name, first.lead.Token(), c.name, c.lead.Token())
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
	limit := time.After(v.Patience + 10*v.Heartbeat)
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

// holding is for how many heartbeats somebody leads to have led on: a lease is shorter.
const holding = 3

// holds waits for a time in which the leader is to lead on.
func (v *voters) holds(c *voter) {
	v.Helper()
	v.mu.Lock()
	l := c.lead
	v.mu.Unlock()
	select {
	case <-l.Done():
		v.Errorf("%s does not lead on: %v", c.name, l.Err())
	case <-time.After(holding * v.Heartbeat):
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

// firstLeader: the first leads after an election timeout, and leads on.
func firstLeader(s *suite) {
	v := s.voters(1)
	c := v.leader()
	if token := v.token(c); token != 1 {
		s.Errorf("the first token is %d", token)
	}
	v.holds(c)
	v.resign(c)
}

// togetherAtFirst: those who make the record at one time have one leader.
func togetherAtFirst(s *suite) {
	v := s.voters(0)
	cs := make([]*voter, 4)
	errs := make([]error, len(cs))
	var all sync.WaitGroup
	for i := range cs {
		all.Go(func() { cs[i], errs[i] = v.candidate(fmt.Sprint("candidate ", i)) })
	}
	all.Wait()
	for i, c := range cs {
		if errs[i] != nil {
			s.Fatalf("NewElection of several at once: %v", errs[i])
		}
		v.enter(c)
	}
	leader := v.leader()
	v.holds(leader)
	v.await("the others follow it", func() bool {
		for _, c := range cs {
			if c != leader && c.status.NowFollowing != leader.name {
				return false
			}
		}
		return true
	})
}

// resignHandsOver: the next leads at once, and not after an election timeout.
func resignHandsOver(s *suite) {
	v := s.voters(3)
	first := v.leader()
	v.holds(first) // until everybody follows
	begin := time.Now()
	v.resign(first)
	second := v.leader(first)
	if d := time.Since(begin); d >= 2*v.Heartbeat {
		s.Errorf("after Resign nobody leads for %v, which is an election timeout", d)
	}
	v.resign(second)
	third := v.leader(first, second)
	v.holds(third)
	v.resign(third)
}

// nominee: Elect on any candidate has the one that is named lead.
func nominee(s *suite) {
	v := s.voters(3)
	leader := v.leader()
	for _, by := range v.all {
		var next *voter
		for _, c := range v.all {
			if c != leader {
				next = c
			}
		}
		if err := by.Elect(s.ctx(), next.name); err != nil {
			s.Fatalf("Elect: %v", err)
		}
		v.await(next.name+" leads", func() bool { return next.lead != nil && next.lead.Err() == nil })
		leader = next
	}
	v.holds(leader)
}

// endAndRestart: the end is for everybody, and terms go on after it.
func endAndRestart(s *suite) {
	v := s.voters(3)
	leader := v.leader()
	if err := v.all[0].EndElection(); err != nil {
		s.Fatalf("EndElection: %v", err)
	}
	for _, c := range v.all {
		select {
		case err := <-c.ended:
			s.is(c.name+" after the end", err, leaderelection.ErrElectionOver)
		case <-time.After(s.Patience):
			s.Fatalf("%s has not learned of the end", c.name)
		}
	}
	late, err := v.candidate("late")
	if err != nil {
		s.Fatalf("NewElection after the end: %v", err)
	}
	s.is("a newcomer", late.ElectLeader(), leaderelection.ErrElectionOver)

	if err := changefeed.DeleteElection(s.store()); err != nil {
		s.Errorf("DeleteElection after the end: %v", err)
	}
	if err := changefeed.RestartElection(s.store(), changefeed.WithHeartbeat(s.Heartbeat)); err != nil {
		s.Fatalf("RestartElection: %v", err)
	}
	again := v.join("again")
	if next := v.leader(); next != again || v.token(again) <= v.token(leader) {
		s.Errorf("after the restart %s leads with token %d, after %d", next.name, v.token(next), v.token(leader))
	}
	s.is("RestartElection of one that goes on", changefeed.RestartElection(s.store()), changefeed.ErrGoesOn)
}

// recordLost: it is made anew, nobody leads too early, and terms go on.
func recordLost(s *suite) {
	if s.Lose == nil {
		s.Skipf("the backend has no Lose")
	}
	v := s.voters(3)
	first := v.leader()
	v.mu.Lock()
	l := first.lead
	v.mu.Unlock()
	s.Lose(s)
	select {
	case <-l.Done():
	case <-time.After(s.Patience):
		s.Fatalf("%s leads on without a record", first.name)
	}
	v.holds(v.leader())
}

// storeCloses: a candidate whose store is closed is told so, and the others go on.
func storeCloses(s *suite) {
	v := s.voters(3)
	leader := v.leader()
	_ = leader.store.Close()
	select {
	case err := <-leader.ended:
		s.is("the candidate whose store was closed", err, changefeed.ErrClosed)
		s.is("the candidate whose store was closed", err, leaderelection.ErrConnClosed)
	case <-time.After(s.Patience):
		s.Fatalf("a candidate has not noticed that its store was closed")
	}
	v.leader(leader)
}

// restartOfTheServer: somebody leads afterwards, and never two.
func restartOfTheServer(s *suite) {
	if s.Restart == nil {
		s.Skipf("the backend has no Restart")
	}
	v := s.voters(3)
	v.leader()
	for range 2 {
		s.Restart(s)
		ctx, cancel := context.WithTimeout(context.Background(), 3*v.Heartbeat)
		<-ctx.Done() // so that what was in memory of before is over
		cancel()
		v.holds(v.settled())
	}
}

// settled is a leader that has led for some time.
func (v *voters) settled() *voter {
	v.Helper()
	for {
		c := v.leader()
		v.mu.Lock()
		l := c.lead
		v.mu.Unlock()
		select {
		case <-l.Done():
		case <-time.After(holding * v.Heartbeat):
			return c
		}
	}
}
