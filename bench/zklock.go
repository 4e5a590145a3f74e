package main

import (
	"time"

	"github.com/go-zookeeper/zk"
)

const zkLockName = "zk.Lock"

// newZKLock returns the lock of the client library, go-zookeeper. It is also measured as an election:
// the holder of the lock is the leader.
func newZKLock(addr string, timeout time.Duration) *localContestant {
	return newLocal(zkLockName, addr, timeout, implementation{
		newEntry: func(_ recipe, conn *zk.Conn, dir string) (entry, error) {
			return zkLockEntry{zk.NewLock(conn, dir, zk.WorldACL(zk.PermAll))}, nil
		},
	})
}

type zkLockEntry struct{ lock *zk.Lock }

func (e zkLockEntry) acquire(func()) error { return e.lock.Lock() }
func (e zkLockEntry) release() error       { return e.lock.Unlock() }
