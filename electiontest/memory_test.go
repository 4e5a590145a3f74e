package electiontest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/event"
)

// defects selects defects of the memory election. The suite must find each of them.
type defects struct {
	TwoLeaders            bool // every candidate is leader
	NoSuccessor           bool // no candidate becomes leader after the leader has resigned
	LateRevocation        bool // the next candidate becomes leader before the leadership ends
	NoRevocation          bool
	RepeatedTokens        bool
	DecreasingTokens      bool
	NoLeadership          bool // a leader's status has no leadership
	NoFirstStatus         bool // a follower has no status
	NoID                  bool
	EarlyID               bool
	NewChannelPerCall     bool // Status returns another channel each time
	BlocksOnReader        bool
	KeepsStaleStatuses    bool // a late reader receives the statuses that it has missed
	NoChannelClose        bool
	StatusAfterResign     bool // a final status after Resign
	RepeatedResignFails   bool // the second Resign returns an error
	ResignHangs           bool // Resign before the start blocks
	ElectLeaderHangs      bool // ElectLeader does not return
	ElectLeaderFails      bool // ElectLeader returns an error after Resign
	StartsTwice           bool
	StartsAfterEnd        bool
	LeaderAfterEnd        bool // Current returns the role Leader after the end of the candidacy
	CrashStopsElection    bool // no candidate becomes leader after a crash of the leader
	LeaderAfterCrash      bool // a leader that has crashed remains leader
	NoDoneAtDeadline      bool // Done of a crashed leader is not closed at the deadline
	FollowerEndsLeader    bool // the leadership ends when a follower resigns
	EndsOnlyItself        bool // EndElection ends only the candidacy on which it is called
	AcceptsAfterEnd       bool
	RepeatedEndFails      bool // the second EndElection returns an error
	NoFinalStatus         bool // a late reader receives no final status
	WrongReason           bool // the leadership ends with the wrong error
	StatusAfterFinal      bool
	LeadershipWithoutLoss bool // a second leadership begins without a status between the two
	LeaksGoroutine        bool
	NoEvents              bool
	NoElectedEvent        bool
	NoEndedEvent          bool
	NoLostReason          bool
	EarlyLostEvent        bool // event.Lost is reported before the leadership has ended
	NeverNext             bool // no candidate is next
	AllNext               bool // each follower reports that it is next
	LastNext              bool // the last candidate is next
	LeaderNext            bool // a leader is next
	ResignationForgotten  bool // the successor of a leader that has resigned learns that a lease has expired
	CrashForgotten        bool // the successor of a leader that has crashed learns that it has resigned
	OtherFormerErr        bool // FormerErr is neither ErrResigned nor ErrLeaseExpired

	noEnd bool // the backend cannot end elections, which is not a defect
}

// memoryElection is an election among candidates in this process.
type memoryElection struct {
	defects
	done chan struct{} // closed when the test is over, so that defects leave no goroutine running

	mu    lock
	queue []*candidate
	token int64
	names int
	over  bool
	// former is the reason why the last leadership has ended. next is the candidate whose newest status
	// reports that it is next.
	former error
	next   *candidate
}

func memoryFactory(d defects) electiontest.Factory {
	return func(t electiontest.TB) *electiontest.Group {
		m := &memoryElection{defects: d, done: make(chan struct{}), mu: make(lock, 1)}
		t.Cleanup(func() { close(m.done) })
		return &electiontest.Group{New: m.newCandidate, Crash: m.crashProgram, NoEnd: d.noEnd, InOrder: true}
	}
}

// lock is a mutex. Unlike with sync.Mutex, fake time advances while a goroutine waits for it.
type lock chan struct{}

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

// candidate implements leaderelection.Candidate.
type candidate struct {
	memory  *memoryElection
	program int
	candidacy.Candidacy
	statuses chan leaderelection.Status // replaces the channel of Candidacy if a defect requires that
	done     chan struct{}

	// The following fields are guarded by memoryElection.mu.
	id                               string
	called, started, ended, resigned bool
	err                              error
	leadership                       *leaderelection.Leadership
	revoke                           context.CancelCauseFunc

	lastDeadline atomic.Pointer[time.Time] // the deadline does not increase beyond this time
}

// currentDeadline is the deadline of a leadership that is renewed until the program crashes.
func (c *candidate) currentDeadline() time.Time {
	if d := c.lastDeadline.Load(); d != nil {
		return *d
	}
	return time.Now().Add(time.Second)
}

func (m *memoryElection) newCandidate(i int) (leaderelection.Candidate, error) {
	c := &candidate{memory: m, program: i, Candidacy: candidacy.New(context.Background(), nil), done: make(chan struct{})}
	if m.BlocksOnReader {
		c.statuses = make(chan leaderelection.Status)
	}
	if m.KeepsStaleStatuses || m.LeadershipWithoutLoss {
		c.statuses = make(chan leaderelection.Status, 100)
	}
	if m.EarlyID {
		c.id = "early"
	}
	return c, nil
}

func (c *candidate) ID() string {
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	return c.id
}

func (c *candidate) Status() <-chan leaderelection.Status {
	if c.statuses != nil {
		return c.statuses
	}
	if c.memory.NewChannelPerCall {
		other := make(chan leaderelection.Status, 1)
		go func() {
			defer close(other)
			for {
				select {
				case s, ok := <-c.Candidacy.Status():
					if !ok {
						return
					}
					select {
					case other <- s:
					case <-c.memory.done:
						return
					}
				case <-c.memory.done:
					return
				}
			}
		}()
		return other
	}
	return c.Candidacy.Status()
}

func (c *candidate) Events() <-chan event.Event {
	switch {
	case c.memory.NoEvents:
		return nil
	case c.memory.NoEndedEvent:
		return c.eventsWithoutEnded()
	}
	return c.Candidacy.Events()
}

// eventsWithoutEnded returns a channel that delivers all events except event.Ended.
func (c *candidate) eventsWithoutEnded() <-chan event.Event {
	events := make(chan event.Event)
	go func() {
		defer close(events)
		for e := range c.Candidacy.Events() {
			if e.Kind == event.Ended {
				continue
			}
			select {
			case events <- e:
			case <-c.memory.done:
				return
			}
		}
	}()
	return events
}

func (c *candidate) Current() leaderelection.Status {
	s := c.Candidacy.Current()
	select {
	case <-c.done:
		if c.memory.LeaderAfterEnd {
			s.Role = leaderelection.Leader
		}
	default:
	}
	return s
}

func (c *candidate) ElectLeader() error {
	m := c.memory
	m.mu.Lock()
	if c.called && (c.ended && !m.StartsAfterEnd || !c.ended && !m.StartsTwice) {
		m.mu.Unlock()
		return leaderelection.ErrAlreadyStarted
	}
	c.called = true
	if !c.started && !c.ended {
		m.joinQueue(c)
	}
	m.mu.Unlock()
	if m.LeaksGoroutine {
		go func() { <-m.done }()
	}
	<-c.done
	if m.ElectLeaderHangs {
		<-m.done
	}
	if m.ElectLeaderFails && c.err == nil {
		return leaderelection.ErrResigned
	}
	return c.err
}

// joinQueue appends c to the queue.
func (m *memoryElection) joinQueue(c *candidate) {
	c.started = true
	m.names++
	if c.id = fmt.Sprint("candidate ", m.names); m.NoID {
		c.id = ""
	}
	if m.over {
		if !m.AcceptsAfterEnd {
			m.finishCandidacy(c, leaderelection.ErrElectionOver)
			return
		}
		m.over = false
	}
	c.Join(c.id)
	m.queue = append(m.queue, c)
	if m.queue[0] != c && !m.TwoLeaders && !m.NoFirstStatus {
		m.deliverStatus(c, leaderelection.Status{CandidateID: c.id, NowFollowing: m.queue[len(m.queue)-2].id})
	}
	m.electHead()
}

// electHead makes the candidate at the head of the queue the leader.
func (m *memoryElection) electHead() {
	for i, c := range m.queue {
		if c.leadership != nil || i > 0 && !m.TwoLeaders {
			continue
		}
		switch m.token++; {
		case m.RepeatedTokens:
			m.token = 1
		case m.DecreasingTokens:
			m.token -= 2
		}
		var deadline func() time.Time
		if m.NoDoneAtDeadline {
			deadline = c.currentDeadline
		}
		c.leadership, c.revoke = candidacy.NewLeadership(m.token, deadline)
		s := leaderelection.Status{
			CandidateID: c.id, Role: leaderelection.Leader, Leadership: c.leadership, FormerErr: m.former, Next: m.LeaderNext,
		}
		if m.NoLeadership {
			s.Leadership = nil
		}
		m.deliverStatus(c, s)
		if !m.NoElectedEvent {
			c.Report(event.Event{Kind: event.Elected, Token: m.token})
		}
		if m.LeadershipWithoutLoss {
			c.revoke(leaderelection.ErrLeaseExpired)
			c.leadership, c.revoke = candidacy.NewLeadership(m.token, nil)
			s.Leadership = c.leadership
			m.deliverStatus(c, s)
		}
	}
	m.notifyNext()
}

// notifyNext notifies the second candidate in the queue that it is next.
func (m *memoryElection) notifyNext() {
	if len(m.queue) < 2 || m.NeverNext || m.TwoLeaders || m.NoFirstStatus {
		return
	}
	next, at := m.queue[1], 1
	if m.LastNext || m.AllNext {
		at = len(m.queue) - 1
		next = m.queue[at]
	}
	if next == m.next {
		return
	}
	if m.LastNext && m.next != nil && slices.Contains(m.queue, m.next) && m.next != m.queue[0] {
		m.deliverStatus(m.next, leaderelection.Status{CandidateID: m.next.id, NowFollowing: m.queue[0].id})
	}
	m.next = next
	m.deliverStatus(next, leaderelection.Status{CandidateID: next.id, NowFollowing: m.queue[at-1].id, Next: true})
}

func (m *memoryElection) deliverStatus(c *candidate, s leaderelection.Status) {
	if c.statuses == nil {
		c.publishStatus(s)
		return
	}
	c.Retract(s) // Retract changes the result of Current
	select {
	case c.statuses <- s:
	case <-m.done:
	}
}

func (c *candidate) publishStatus(s leaderelection.Status) {
	c.SetID(s.CandidateID)
	c.Publish(s)
}

// leaveQueue removes c from the queue.
func (m *memoryElection) leaveQueue(c *candidate, reason error) {
	i := slices.Index(m.queue, c)
	if i < 0 {
		return
	}
	m.queue = slices.Delete(m.queue, i, i+1)
	if i == 0 {
		m.former = leaderelection.ErrLeaseExpired
		if errors.Is(reason, leaderelection.ErrResigned) != (m.ResignationForgotten || m.CrashForgotten) {
			m.former = leaderelection.ErrResigned
		}
		if m.OtherFormerErr {
			m.former = reason
		}
	}
	revoke := func() {
		lost := event.Event{Kind: event.Lost, Err: reason}
		if m.NoLostReason {
			lost.Err = nil
		}
		if m.EarlyLostEvent {
			c.Report(lost)
			time.Sleep(time.Millisecond)
		}
		if c.revoke != nil && !m.NoRevocation {
			c.revoke(reason)
		}
		c.Report(lost)
	}
	if !m.LateRevocation {
		revoke()
	}
	if m.FollowerEndsLeader && i > 0 && len(m.queue) > 0 && m.queue[0].revoke != nil {
		m.queue[0].revoke(reason)
	}
	if !m.NoSuccessor {
		m.electHead()
	}
	if m.LateRevocation {
		time.Sleep(time.Second)
		revoke()
	}
}

// finishCandidacy ends the candidacy of c. If err is not nil, it delivers a final status with err.
func (m *memoryElection) finishCandidacy(c *candidate, err error) {
	if c.ended {
		return
	}
	c.ended, c.err = true, err
	defer close(c.done)
	reason := cmp.Or(err, leaderelection.ErrResigned)
	c.Report(event.Event{Kind: event.Lost, Err: reason})
	switch {
	case c.statuses != nil:
		_ = c.Finish(leaderelection.ErrResigned)
		if err != nil {
			m.deliverStatus(c, leaderelection.Status{CandidateID: c.id, Err: err})
		}
		if !m.NoChannelClose {
			close(c.statuses)
		}
	case m.NoChannelClose:
		c.Retract(leaderelection.Status{})
	case m.StatusAfterFinal && err != nil:
		c.Publish(leaderelection.Status{Err: err})
		time.Sleep(time.Millisecond)
		_ = c.Finish(nil)
	case err != nil && !m.NoFinalStatus:
		_ = c.Finish(err)
	case m.StatusAfterResign:
		_ = c.Finish(fmt.Errorf("final status: %v", leaderelection.ErrResigned))
	default:
		_ = c.Finish(leaderelection.ErrResigned)
	}
}

func (c *candidate) Resign() error {
	m := c.memory
	if m.ResignHangs {
		m.mu.Lock()
		started := c.started
		m.mu.Unlock()
		if !started {
			<-m.done
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.RepeatedResignFails && c.resigned {
		return leaderelection.ErrAlreadyStarted
	}
	c.resigned = true
	reason := leaderelection.ErrResigned
	if m.WrongReason {
		reason = leaderelection.ErrLeaseExpired
	}
	m.leaveQueue(c, reason)
	m.finishCandidacy(c, nil)
	return nil
}

func (c *candidate) EndElection() error {
	m := c.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.noEnd || m.over && m.RepeatedEndFails {
		return leaderelection.ErrNoElection
	}
	line := m.queue
	if m.EndsOnlyItself {
		line = []*candidate{c}
	}
	m.over = true
	m.queue = slices.DeleteFunc(slices.Clone(m.queue), func(o *candidate) bool { return slices.Contains(line, o) })
	for _, o := range slices.Backward(line) {
		if o.revoke != nil {
			o.revoke(leaderelection.ErrElectionOver)
		}
		m.finishCandidacy(o, leaderelection.ErrElectionOver)
	}
	return nil
}

// crashProgram ends the candidacies of a program, like the expiry of its session.
func (m *memoryElection) crashProgram(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.CrashStopsElection {
		return
	}
	for _, c := range slices.Clone(m.queue) {
		if c.program != i {
			continue
		}
		if m.LeaderAfterCrash {
			c.revoke = nil
		}
		if m.NoDoneAtDeadline {
			d := time.Now().Add(time.Second)
			c.lastDeadline.Store(&d)
			c.revoke = nil
			time.Sleep(2 * time.Second)
		}
		m.leaveQueue(c, leaderelection.ErrSessionExpired)
		m.finishCandidacy(c, leaderelection.ErrSessionExpired)
	}
}
