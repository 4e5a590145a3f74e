package electiontest_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// defects are what a memory can do wrongly, each of which the suite must find.
type defects struct {
	TwoLead          bool // everybody leads
	NobodyFollows    bool // after the leader has gone
	RevokesLate      bool // the next one is told before the leadership ends
	RevokesNever     bool
	TokensRepeat     bool
	TokensFall       bool
	NoLeadership     bool // in the status of a leader
	NoFirstStatus    bool // for followers
	NoID             bool
	IDTooEarly       bool
	OtherChannel     bool // at each call of Status
	BlocksOnReader   bool
	KeepsStale       bool // statuses that were not read
	NeverCloses      bool
	TellsOfResign    bool // a final status
	ResignFails      bool // when repeated
	ResignHangs      bool // before the start
	NoReturn         bool // of ElectLeader
	ReturnsError     bool // of ElectLeader after Resign
	StartsTwice      bool
	StartsWhenOver   bool
	LeadsAfterwards  bool // says Current
	CrashStops       bool // the succession
	CrashedLeads     bool // on
	FollowerStops    bool // the leader, when it leaves
	EndsForItself    bool // only
	EndsNotForNew    bool
	EndFails         bool // when repeated
	EndIsForgotten   bool // the final status, by late readers
	WrongReason      bool // of a leadership's end
	StatusAfterFinal bool
	Flaps            bool // a new leadership without the end of the old
	Leaks            bool
	NoEvents         bool
	NoElectedEvent   bool
	NoEndedEvent     bool
	NoLostReason     bool
	LostEarly        bool // the event, while the leadership lasts

	cannotEnd bool // which is none
}

// memory is an election among the candidates of this process.
type memory struct {
	defects
	dead chan struct{} // the test is over: nothing of a defect is left behind

	mu    lock
	line  []*local
	token int64
	names int
	over  bool
}

func inMemory(d defects) electiontest.Factory {
	return func(t electiontest.TB) *electiontest.Group {
		m := &memory{defects: d, dead: make(chan struct{}), mu: make(lock, 1)}
		t.Cleanup(func() { close(m.dead) })
		return &electiontest.Group{New: m.candidate, Crash: m.crash, NoEnd: d.cannotEnd}
	}
}

// lock is a mutex, with which fake time goes on while somebody waits for it.
type lock chan struct{}

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

// local is a candidate.
type local struct {
	m       *memory
	program int
	*leaderelection.Candidacy
	queue chan leaderelection.Status // of some defects, instead of that of Candidacy
	done  chan struct{}

	// Guarded by m.mu.
	id                       string
	started, ended, resigned bool
	err                      error
	grant                    *leaderelection.Leadership
	revoke                   context.CancelCauseFunc
}

func (m *memory) candidate(i int) (leaderelection.Candidate, error) {
	c := &local{m: m, program: i, Candidacy: leaderelection.NewCandidacy(context.Background(), nil), done: make(chan struct{})}
	if m.BlocksOnReader {
		c.queue = make(chan leaderelection.Status)
	}
	if m.KeepsStale || m.Flaps {
		c.queue = make(chan leaderelection.Status, 100)
	}
	if m.IDTooEarly {
		c.id = "early"
	}
	return c, nil
}

func (c *local) ID() string {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	return c.id
}

func (c *local) Status() <-chan leaderelection.Status {
	if c.queue != nil {
		return c.queue
	}
	if c.m.OtherChannel {
		other := make(chan leaderelection.Status, 1)
		go func() {
			defer close(other)
			for {
				select {
				case s, ok := <-c.Candidacy.Status():
					if !ok {
						return
					}
					other <- s
				case <-c.m.dead:
					return
				}
			}
		}()
		return other
	}
	return c.Candidacy.Status()
}

func (c *local) Events() <-chan leaderelection.Event {
	if c.m.NoEvents {
		return nil
	}
	return c.Candidacy.Events()
}

func (c *local) Current() leaderelection.Status {
	s := c.Candidacy.Current()
	select {
	case <-c.done:
		if c.m.LeadsAfterwards {
			s.Role = leaderelection.Leader
		}
	default:
	}
	return s
}

func (c *local) ElectLeader() error {
	m := c.m
	m.mu.Lock()
	switch {
	case c.ended && !m.StartsWhenOver:
		m.mu.Unlock()
		return leaderelection.ErrCandidacyOver
	case c.started && !c.ended && !m.StartsTwice:
		m.mu.Unlock()
		return leaderelection.ErrAlreadyStarted
	}
	if !c.started && !c.ended {
		m.enter(c)
	}
	m.mu.Unlock()
	if m.Leaks {
		go func() { <-m.dead }()
	}
	<-c.done
	if m.NoReturn {
		<-m.dead
	}
	if m.ReturnsError && c.err == nil {
		return leaderelection.ErrResigned
	}
	return c.err
}

// enter puts c at the end of the line.
func (m *memory) enter(c *local) {
	c.started = true
	m.names++
	if c.id = fmt.Sprint("candidate ", m.names); m.NoID {
		c.id = ""
	}
	if m.over {
		if !m.EndsNotForNew {
			m.finish(c, leaderelection.ErrElectionOver)
			return
		}
		m.over = false
	}
	c.Join(c.id)
	m.line = append(m.line, c)
	if m.line[0] != c && !m.TwoLead && !m.NoFirstStatus {
		m.tell(c, leaderelection.Status{CandidateID: c.id, NowFollowing: m.line[len(m.line)-2].id})
	}
	m.elect()
}

// elect has the first lead.
func (m *memory) elect() {
	for i, c := range m.line {
		if c.grant != nil || i > 0 && !m.TwoLead {
			continue
		}
		switch m.token++; {
		case m.TokensRepeat:
			m.token = 1
		case m.TokensFall:
			m.token -= 2
		}
		c.grant, c.revoke = leaderelection.NewLeadership(m.token, nil)
		s := leaderelection.Status{CandidateID: c.id, Role: leaderelection.Leader, Leadership: c.grant}
		if m.NoLeadership {
			s.Leadership = nil
		}
		m.tell(c, s)
		if !m.NoElectedEvent {
			c.Report(leaderelection.Event{Kind: leaderelection.EventElected, Token: m.token})
		}
		if m.Flaps {
			c.revoke(leaderelection.ErrLeaseExpired)
			c.grant, c.revoke = leaderelection.NewLeadership(m.token, nil)
			s.Leadership = c.grant
			m.tell(c, s)
		}
	}
}

func (m *memory) tell(c *local, s leaderelection.Status) {
	if c.queue == nil {
		c.publish(s)
		return
	}
	c.Retract(s) // for Current
	select {
	case c.queue <- s:
	case <-m.dead:
	}
}

func (c *local) publish(s leaderelection.Status) {
	c.SetID(s.CandidateID)
	c.Publish(s)
}

// remove takes c out of the line.
func (m *memory) remove(c *local, reason error) {
	i := slices.Index(m.line, c)
	if i < 0 {
		return
	}
	m.line = slices.Delete(m.line, i, i+1)
	revoke := func() {
		lost := leaderelection.Event{Kind: leaderelection.EventLost, Err: reason}
		if m.NoLostReason {
			lost.Err = nil
		}
		if m.LostEarly {
			c.Report(lost)
			time.Sleep(time.Millisecond)
		}
		if c.revoke != nil && !m.RevokesNever {
			c.revoke(reason)
		}
		c.Report(lost)
	}
	if !m.RevokesLate {
		revoke()
	}
	if m.FollowerStops && i > 0 && len(m.line) > 0 && m.line[0].revoke != nil {
		m.line[0].revoke(reason)
	}
	if !m.NobodyFollows {
		m.elect()
	}
	if m.RevokesLate {
		time.Sleep(time.Second)
		revoke()
	}
}

// finish ends c's candidacy, with a final status if there is an error.
func (m *memory) finish(c *local, err error) {
	if c.ended {
		return
	}
	c.ended, c.err = true, err
	defer close(c.done)
	reason := cmp.Or(err, leaderelection.ErrResigned)
	c.Report(leaderelection.Event{Kind: leaderelection.EventLost, Err: reason})
	if c.started && !m.NoEndedEvent {
		c.Report(leaderelection.Event{Kind: leaderelection.EventEnded, Err: reason})
	}
	switch {
	case c.queue != nil:
		_ = c.Finish(leaderelection.ErrResigned)
		if err != nil {
			m.tell(c, leaderelection.Status{CandidateID: c.id, Err: err})
		}
		if !m.NeverCloses {
			close(c.queue)
		}
	case m.NeverCloses:
		c.Retract(leaderelection.Status{})
	case m.StatusAfterFinal && err != nil:
		c.Publish(leaderelection.Status{Err: err})
		time.Sleep(time.Millisecond)
		_ = c.Finish(nil)
	case err != nil && !m.EndIsForgotten:
		_ = c.Finish(err)
	case m.TellsOfResign:
		_ = c.Finish(fmt.Errorf("final status: %v", leaderelection.ErrResigned))
	default:
		_ = c.Finish(leaderelection.ErrResigned)
	}
}

func (c *local) Resign() error {
	m := c.m
	if m.ResignHangs {
		m.mu.Lock()
		started := c.started
		m.mu.Unlock()
		if !started {
			<-m.dead
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ResignFails && c.resigned {
		return leaderelection.ErrCandidacyOver
	}
	c.resigned = true
	reason := leaderelection.ErrResigned
	if m.WrongReason {
		reason = leaderelection.ErrLeaseExpired
	}
	m.remove(c, reason)
	m.finish(c, nil)
	return nil
}

func (c *local) EndElection() error {
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cannotEnd || m.over && m.EndFails {
		return leaderelection.ErrNoElection
	}
	line := m.line
	if m.EndsForItself {
		line = []*local{c}
	}
	m.over = true
	m.line = slices.DeleteFunc(slices.Clone(m.line), func(o *local) bool { return slices.Contains(line, o) })
	for _, o := range slices.Backward(line) {
		if o.revoke != nil {
			o.revoke(leaderelection.ErrElectionOver)
		}
		m.finish(o, leaderelection.ErrElectionOver)
	}
	return nil
}

// crash ends the candidacies of a program, as the end of its session would.
func (m *memory) crash(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.CrashStops {
		return
	}
	for _, c := range slices.Clone(m.line) {
		if c.program != i {
			continue
		}
		if m.CrashedLeads {
			c.revoke = nil
		}
		m.remove(c, leaderelection.ErrSessionExpired)
		m.finish(c, leaderelection.ErrSessionExpired)
	}
}
