package interop

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
)

func (p *peer) newSemaphore(t *testing.T, conn *zk.Conn, path string, limit int) *lock.Semaphore {
	layout := lock.WithCuratorLayout()
	if p == kazoo {
		layout = p.layout()
	}
	s, err := lock.NewSemaphore(conn, path, limit, layout)
	require.NoError(t, err)
	return s
}

func (p *peer) semaphoreOpener(limit int) lockOpener {
	return func(t *testing.T, conn *zk.Conn, path string) acquireFunc {
		s := p.newSemaphore(t, conn, path, limit)
		return func(ctx context.Context) (hold, error) {
			return toHold(s.Acquire(ctx, 1))
		}
	}
}

// TestSemaphore_SharesLimitWithPeer checks that Go and a peer together hold no more leases of a semaphore than its
// limit, and that each can wait for a lease of the other.
func TestSemaphore_SharesLimitWithPeer(t *testing.T) {
	for _, p := range []*peer{kazoo, curator} {
		t.Run(p.name, func(t *testing.T) {
			const limit = 2
			m := contention{peer: p, kind: "semaphore", max: limit, open: p.semaphoreOpener(limit)}
			m.queuePath = "/locks"
			if p == kazoo {
				m.queuePath = "-__lock__"
			}
			t.Run("exclusion", func(t *testing.T) { m.testExclusion(t, 10) })
			one := m
			one.max, one.open = 1, p.semaphoreOpener(1)
			t.Run("hand-over of one lease", one.testHandOver)
			t.Run("leases together", func(t *testing.T) { testLeasesTogether(t, m) })
		})
	}
}

// testLeasesTogether requires that Go and the peer can hold one of two leases each, and that each can wait for the
// lease of the other.
func testLeasesTogether(t *testing.T, m contention) {
	m.peer.requirePeer(t)
	m.path = testenv.NewPath(t)
	r, conn := exclusionMonitor.newResource(t, m.max, true), connect(t)
	open := m.open(t, conn, m.path)
	first := acquireRepeatedly(t, open, r, "go1", "write", 1)
	g := r.waitHolder(t, "go1")
	peer1 := m.startPeer(t, 0, r, "peer1", 1)
	p := r.waitHolder(t, "peer1")
	require.Equal(t, 2, r.maxHolders)
	m.waitQueue(t, conn, 2)

	peer2 := m.startPeer(t, 1, r, "peer2", 1)
	m.waitQueue(t, conn, 3)
	second := acquireRepeatedly(t, open, r, "go2", "write", 1)
	m.waitQueue(t, conn, 4)
	r.requireNoHolder(t)
	g.release() // the peer then acquires the lease of Go
	first()
	v := r.waitHolder(t, "peer2")
	r.requireNoHolder(t)
	p.release() // Go then acquires the lease of the peer
	peer1.wait(t)
	w := r.waitHolder(t, "go2")
	v.release()
	w.release()
	peer2.wait(t)
	second()
}

// TestSemaphore_FollowsLimitOfSharedCount checks that a greater limit in Curator's SharedCount admits waiting
// participants in Go and in Java.
func TestSemaphore_FollowsLimitOfSharedCount(t *testing.T) {
	curator.requirePeer(t)
	path := testenv.NewPath(t)
	conn := connect(t)
	s, err := lock.NewSemaphore(conn, path, 1, lock.WithCuratorLayout(), lock.WithSharedCount(path+"-limit"))
	require.NoError(t, err)
	c := contention{peer: curator, kind: "counted", max: 1, path: path}
	r := exclusionMonitor.newResource(t, 3, true)
	open := func(ctx context.Context) (hold, error) { return toHold(s.Acquire(ctx, 1)) }

	first := acquireRepeatedly(t, open, r, "go1", "write", 1)
	g := r.waitHolder(t, "go1")
	peer1 := c.startPeer(t, 0, r, "peer1", 1)
	waitChildren(t, conn, 1, path+"/locks")
	r.requireNoHolder(t)
	require.NoError(t, s.SetLimit(t.Context(), 2))
	p := r.waitHolder(t, "peer1")

	second := acquireRepeatedly(t, open, r, "go2", "write", 1)
	waitChildren(t, conn, 1, path+"/locks")
	r.requireNoHolder(t)
	require.NoError(t, s.SetLimit(t.Context(), 3))
	w := r.waitHolder(t, "go2")
	all, err := s.Contenders(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 3)
	for _, c := range all {
		require.True(t, c.Holds)
	}
	for _, h := range []*holder{g, p, w} {
		h.release()
	}
	first()
	second()
	peer1.wait(t)
}
