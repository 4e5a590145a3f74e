package main

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const zkLockName = "zk.Lock"

// zkLock is the lock that comes with the client library.
type zkLock struct {
	sessions
	standers
	running *sync.WaitGroup

	mu    sync.Mutex
	locks map[int]*zk.Lock
}

func newZKLock(addr string) *zkLock {
	return &zkLock{sessions: newSessions(addr), standers: newStanders(), running: new(sync.WaitGroup), locks: map[int]*zk.Lock{}}
}

func (z *zkLock) name() string { return zkLockName }
func (z *zkLock) most() int    { return math.MaxInt }

func (z *zkLock) join(session int, dir string, _ bool) (time.Duration, error) {
	conn := z.conn(session)
	at := now()
	lock := zk.NewLock(conn, dir, zk.WorldACL(zk.PermAll))
	if err := lock.Lock(); err != nil {
		return 0, err
	}
	took := time.Duration(now() - at)
	return took, lock.Unlock()
}

func (z *zkLock) stand(candidate, session int, dir string) {
	conn := z.conn(session)
	z.running.Go(func() {
		lock := zk.NewLock(conn, dir, zk.WorldACL(zk.PermAll))
		if err := lock.Lock(); err != nil {
			if !cutShort(err) {
				z.tellFailed(err)
			}
			return
		}
		at := now()
		z.mu.Lock()
		z.locks[candidate] = lock
		z.mu.Unlock()
		z.leading <- leading{candidate, at}
	})
}

func (z *zkLock) leave(candidate int) (int64, error) {
	z.mu.Lock()
	lock := z.locks[candidate]
	delete(z.locks, candidate)
	z.mu.Unlock()
	if lock == nil {
		return 0, fmt.Errorf("candidate %d does not hold the lock", candidate)
	}
	at := now()
	return at, lock.Unlock()
}

func (z *zkLock) reset() error {
	z.disconnectAll()
	if waitAll(z.running, brokenClose) != nil {
		// Whoever is given up must not be waited for again, nor be heard.
		z.running, z.standers = new(sync.WaitGroup), newStanders()
	}
	z.forget()
	z.mu.Lock()
	defer z.mu.Unlock()
	clear(z.locks)
	return nil
}

func (z *zkLock) close() error { return z.reset() }
