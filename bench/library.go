package main

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

const libraryName = "this library"

// library is the library whose module this one belongs to.
type library struct {
	sessions
	standers
	running sync.WaitGroup
	placed  atomic.Int64
	caching *caching

	mu        sync.Mutex
	prepared  map[int]*leaderelection.Election
	elections map[int]*leaderelection.Election
}

func newLibrary(addr string) *library {
	return &library{
		sessions: newSessions(addr), standers: newStanders(),
		prepared: map[int]*leaderelection.Election{}, elections: map[int]*leaderelection.Election{},
	}
}

func (l *library) name() string { return libraryName }
func (l *library) most() int    { return math.MaxInt }

func (l *library) newElection(session int, dir string) (*leaderelection.Election, error) {
	return leaderelection.NewElection(l.conn(session), dir, leaderelection.WithSessionTimeout(sessionTimeout))
}

func (l *library) join(session int, dir string, whole bool) (time.Duration, error) {
	at := now()
	election, err := l.newElection(session, dir)
	if err != nil {
		return 0, err
	}
	if !whole {
		at = now()
	}
	go election.ElectLeader()
	for status := range election.Status() {
		switch {
		case status.Err != nil:
			return 0, status.Err
		case status.Role == leaderelection.Leader:
			took := time.Duration(now() - at)
			if status.Leadership.Token() == 0 {
				return 0, errors.New("a leader has no token")
			}
			return took, election.Resign()
		}
	}
	return 0, errors.New("the candidacy has ended without leadership")
}

func (l *library) prepare(n, sessions int, dir string) error {
	for i := range n {
		election, err := l.newElection(i%sessions, dir)
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.prepared[i] = election
		l.mu.Unlock()
	}
	return nil
}

func (l *library) stand(candidate, session int, dir string) {
	l.mu.Lock()
	election := l.prepared[candidate]
	delete(l.prepared, candidate)
	l.mu.Unlock()
	l.running.Go(func() {
		if election == nil {
			var err error
			if election, err = l.newElection(session, dir); err != nil {
				l.tellFailed(err)
				return
			}
		}
		l.mu.Lock()
		l.elections[candidate] = election
		l.mu.Unlock()
		l.running.Go(func() {
			err := election.ElectLeader()
			if err != nil && !errors.Is(err, leaderelection.ErrConnClosed) {
				l.tellFailed(err)
			}
		})
		placed := false
		for status := range election.Status() {
			if status.Role == leaderelection.Leader {
				l.tellLeads(candidate)
			}
			if !placed {
				placed = true
				l.placed.Add(1)
			}
		}
	})
}

func (l *library) enlisted() int { return int(l.placed.Load()) }

func (l *library) leave(candidate int) (int64, error) {
	l.mu.Lock()
	election := l.elections[candidate]
	delete(l.elections, candidate)
	l.mu.Unlock()
	if election == nil {
		return 0, fmt.Errorf("no candidate %d", candidate)
	}
	at := now()
	return at, election.Resign()
}

func (l *library) reset() error {
	l.disconnectAll()
	err := waitAll(&l.running, 3*sessionTimeout)
	l.forget()
	l.placed.Store(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.prepared)
	clear(l.elections)
	return err
}

func (l *library) close() error { return l.reset() }
