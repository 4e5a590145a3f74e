package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
)

// localContestant is a contestant in this process.
type localContestant struct {
	title string
	// sessions contains the open sessions, by number.
	sessions
	implementation implementation
	// background contains the goroutines of the implementation, which must return soon after the sessions were
	// closed. It is nil for implementations that do not guarantee this.
	background *sync.WaitGroup
	// countsQueued is set if entries report when they know their position and watch their predecessor.
	countsQueued bool

	generation *generation
	updates    chan error   // receives a value from the cache of watchCache for each write of the znode cachedName
	leaving    atomic.Int64 // the number of candidates that must leave as soon as they become the head of the queue

	mu       sync.Mutex
	prepared map[int]entry // constructed candidates that have not joined yet
	heads    map[int]entry // candidates that lead or hold the lock
}

// implementation contains the functions that differ between contestants. Only newEntry is required.
type implementation struct {
	newEntry     func(r recipe, conn *zk.Conn, dir string) (entry, error)
	newOperation func(o operation, conn *zk.Conn, dir string) (repeated, error)
	fillCache    func(conn *zk.Conn, dir string, n int) (time.Duration, error)
	// watchCache fills a cache of dir. The cache sends a value to updates after each write of the znode cachedName.
	watchCache func(conn *zk.Conn, dir string, updates chan<- error) error
}

// entry is a participant of an election or a lock.
type entry interface {
	// acquire joins the queue and returns when the participant leads or holds the lock. It calls
	// queued when the participant knows its position and watches its predecessor, if the implementation can
	// determine that.
	acquire(queued func()) error
	// release leaves the queue. A participant of a lock may call acquire again.
	release() error
}

// generation contains the goroutines of the candidates that have joined since the last reset.
type generation struct {
	events  *events
	running sync.WaitGroup
	queued  atomic.Int64
}

func newLocal(title, addr string, timeout time.Duration, i implementation) *localContestant {
	return &localContestant{
		title: title, sessions: sessions{addrs: strings.Split(addr, ","), timeout: timeout, conns: map[int]*zk.Conn{}}, implementation: i,
		generation: &generation{events: newEvents()}, prepared: map[int]entry{}, heads: map[int]entry{},
	}
}

func (l *localContestant) name() string                     { return l.title }
func (l *localContestant) maxCandidates() int               { return math.MaxInt }
func (l *localContestant) processID() int                   { return os.Getpid() }
func (l *localContestant) acquisitions() <-chan acquisition { return l.generation.events.acquired }
func (l *localContestant) failures() <-chan error           { return l.generation.events.failed }

func (l *localContestant) timeJoin(session int, dir string, construct bool) (time.Duration, error) {
	at := now()
	e, err := l.implementation.newEntry(election, l.conn(session), dir)
	if err != nil {
		return 0, err
	}
	if !construct {
		at = now()
	}
	if err := e.acquire(func() {}); err != nil {
		return 0, err
	}
	took := time.Duration(now() - at)
	return took, e.release()
}

func (l *localContestant) prepare(candidate, session int, dir string) error {
	e, err := l.implementation.newEntry(election, l.conn(session), dir)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prepared[candidate] = e
	return nil
}

func (l *localContestant) join(r recipe, candidate, session int, dir string) {
	l.mu.Lock()
	e := l.prepared[candidate]
	delete(l.prepared, candidate)
	l.mu.Unlock()
	conn, g := l.conn(session), l.generation
	g.running.Go(func() {
		if e == nil {
			var err error
			if e, err = l.implementation.newEntry(r, conn, dir); err != nil {
				g.events.reportFailure(err)
				return
			}
		}
		if err := l.acquire(g, candidate, e); err != nil && !isClosed(err) && !errors.Is(err, leaderelection.ErrConnClosed) {
			g.events.reportFailure(err)
		}
	})
}

// acquire acquires the leadership or the lock for a candidate. The candidate then leaves immediately if leaveNext has
// requested this.
func (l *localContestant) acquire(g *generation, candidate int, e entry) error {
	if err := e.acquire(func() { g.queued.Add(1) }); err != nil {
		return err
	}
	acquired := acquisition{candidate, now()}
	if l.leaving.Add(-1) >= 0 {
		err := e.release()
		g.events.acquired <- acquired
		return err
	}
	l.mu.Lock()
	l.heads[candidate] = e
	l.mu.Unlock()
	g.events.acquired <- acquired
	return nil
}

func (l *localContestant) leave(candidate int) (int64, error) {
	l.mu.Lock()
	e := l.heads[candidate]
	delete(l.heads, candidate)
	l.mu.Unlock()
	if e == nil {
		return 0, fmt.Errorf("candidate %d is not the head of the queue", candidate)
	}
	at := now()
	return at, e.release()
}

func (l *localContestant) leaveNext(n int) error {
	l.leaving.Store(int64(n))
	return nil
}

func (l *localContestant) queued() (int, error) {
	if !l.countsQueued {
		return 0, errors.ErrUnsupported
	}
	return int(l.generation.queued.Load()), nil
}

// stopPatience is how long reset waits for candidates whose sessions were closed. It abandons candidates that have
// not returned by then: if requests are in flight during Close, the client library can block without notifying the
// watches.
const stopPatience = 3 * time.Second

func (l *localContestant) reset() error {
	l.disconnectAll()
	waitTimeout(&l.generation.running, stopPatience)
	var err error
	if l.background != nil && !waitTimeout(l.background, 3*sessionTimeout) {
		err = errors.New("candidates still run after their sessions were closed")
	}
	l.generation = &generation{events: newEvents()}
	l.leaving.Store(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.prepared)
	clear(l.heads)
	return err
}

func (l *localContestant) close() error { return l.reset() }

// waitTimeout waits until all goroutines of wg have returned, but not longer than limit. It reports whether they have
// returned.
func waitTimeout(wg *sync.WaitGroup, limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
