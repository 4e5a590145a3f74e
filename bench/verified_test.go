package main

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestVerifiedEntry_WaitsForHolderIfPredecessorLeaves checks that an entry whose predecessor leaves the queue without
// having held the lock continues to wait for the holder of the lock.
func TestVerifiedEntry_WaitsForHolderIfPredecessorLeaves(t *testing.T) {
	for _, name := range []string{verifiedName, tokenName} {
		srv := zktest.Start(t)
		l := newVerifiedBaseline(name, srv.Addr(), sessionTimeout)
		require.NoError(t, connectSessions(l, 3))
		_, err := l.conn(0).Create("/lock", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		acquired := make(chan error, 3)
		var entries []entry
		for i := range 3 { // the entries join one after another: the first acquires the lock, and the others wait
			e, err := l.implementation.newEntry(mutex, l.conn(i), "/lock")
			require.NoError(t, err)
			entries = append(entries, e)
			joined := make(chan struct{})
			go func() { acquired <- e.acquire(func() { close(joined) }) }()
			<-joined
		}
		require.NoError(t, <-acquired)
		holder := entries[0].(*verifiedEntry).znode
		require.Eventually(t, func() bool { return len(srv.Watches()) == 2 }, time.Minute, time.Millisecond)

		go func() { acquired <- entries[1].release() }() // the znode of the second entry is deleted while that entry waits
		require.Eventually(t, func() bool {
			watches := srv.Watches(holder)
			return len(watches) > 0 && watches[len(watches)-1].Session == l.conn(2).SessionID()
		}, time.Minute, time.Millisecond, "the third entry waits for the holder")
		require.NoError(t, entries[0].release())
		for range 3 {
			require.NoError(t, <-acquired)
		}
		require.NoError(t, entries[2].release())
		require.NoError(t, l.close())
	}
}

// TestVerifiedEntry_ExcludesOtherSessions checks that several sessions acquire the lock in turn, so that contend,
// which fails if two sessions hold the lock at the same time, returns no error.
func TestVerifiedEntry_ExcludesOtherSessions(t *testing.T) {
	for _, name := range []string{verifiedName, tokenName} {
		srv := zktest.Start(t)
		l := newVerifiedBaseline(name, srv.Addr(), sessionTimeout)
		require.NoError(t, connectSessions(l, 4))
		for _, path := range []string{"/locks", childPath("/locks", 0)} {
			_, err := l.conn(0).Create(path, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		result, err := l.contend(lockingPattern{sessions: 4, locks: 1, period: benchmark.Period{Length: 100 * time.Millisecond}}, "/locks")
		require.NoError(t, err)
		require.GreaterOrEqual(t, result.locks, 4)
		require.NoError(t, l.close())
	}
}
