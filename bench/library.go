package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
)

const libraryName = "this library"

// newLibrary returns the library of this repository as a contestant.
func newLibrary(addr string, timeout time.Duration) *localContestant {
	library := libraryRecipes{timeout: timeout, option: recipes.WithSessionTimeout(timeout), candidacies: new(sync.WaitGroup)}
	l := newLocal(libraryName, addr, timeout, implementation{
		newEntry:     library.newEntry,
		newOperation: library.newOperation,
		fillCache:    library.fillCache,
		watchCache:   library.watchCache,
	})
	l.background, l.countsQueued = library.candidacies, true
	return l
}

// libraryRecipes constructs the recipes of this library with one session timeout.
type libraryRecipes struct {
	timeout     time.Duration
	option      recipes.Option
	candidacies *sync.WaitGroup
}

func (l libraryRecipes) newEntry(r recipe, conn *zk.Conn, dir string) (entry, error) {
	if r == mutex {
		m, err := lock.NewMutex(conn, dir, l.option)
		return &mutexEntry{mutex: m}, err
	}
	e, err := newLibraryElection(conn, dir, l.timeout)
	return electionEntry{e, l.candidacies}, err
}

func newLibraryElection(conn *zk.Conn, dir string, timeout time.Duration) (*leaderelection.Election, error) {
	return leaderelection.NewElection(conn, dir, leaderelection.WithSessionTimeout(timeout))
}

// electionEntry is a candidate of this library for an election.
type electionEntry struct {
	election    *leaderelection.Election
	candidacies *sync.WaitGroup
}

func (e electionEntry) acquire(queued func()) error {
	// ElectLeader's result is ignored, because the final status contains the error.
	e.candidacies.Go(func() { e.election.ElectLeader() })
	first := true
	for status := range e.election.Status() {
		if first {
			first = false
			queued()
		}
		switch {
		case status.Err != nil:
			return status.Err
		case status.Role == leaderelection.Leader && status.Leadership.Token() == 0:
			return errors.New("the leadership has no fencing token")
		case status.Role == leaderelection.Leader:
			return nil
		}
	}
	return errors.New("the candidacy ended without leadership")
}

func (e electionEntry) release() error { return e.election.Resign() }

type mutexEntry struct {
	mutex *lock.Mutex
	hold  *lock.Hold
}

func (e *mutexEntry) acquire(func()) error {
	var err error
	if e.hold, err = e.mutex.Lock(context.Background()); err != nil {
		return err
	}
	if e.hold.Token() == 0 {
		return errors.New("the hold of the lock has no fencing token")
	}
	return nil
}

func (e *mutexEntry) release() error { return e.hold.Release() }
