package interop

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
)

// layout returns the option for the layout of znodes that Go and the peer share.
func (p *peer) layout() recipes.Option {
	if p == kazoo {
		return recipes.WithKazooLayout()
	}
	return recipes.Option{}
}

// toHold converts the results of a function that acquires a lock. The hold is nil if err is not nil.
func toHold[H hold](h H, err error) (hold, error) {
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (p *peer) newMutex(t *testing.T, conn *zk.Conn, path string) acquireFunc {
	m, err := lock.NewMutex(conn, path, p.layout())
	require.NoError(t, err)
	return func(ctx context.Context) (hold, error) {
		return toHold(m.Lock(ctx))
	}
}

func (p *peer) newRWMutex(t *testing.T, conn *zk.Conn, path string) *lock.RWMutex {
	m, err := lock.NewRWMutex(conn, path, p.layout())
	require.NoError(t, err)
	return m
}

func (p *peer) newWriteLock(t *testing.T, conn *zk.Conn, path string) acquireFunc {
	m := p.newRWMutex(t, conn, path)
	return func(ctx context.Context) (hold, error) {
		return toHold(m.Lock(ctx))
	}
}

func (p *peer) newReadLock(t *testing.T, conn *zk.Conn, path string) acquireFunc {
	m := p.newRWMutex(t, conn, path)
	return func(ctx context.Context) (hold, error) {
		return toHold(m.RLock(ctx))
	}
}

func (p *peer) newLeadership(t *testing.T, conn *zk.Conn, path string) acquireFunc {
	options := []leaderelection.Option{leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(sessionTimeout)}
	if p == kazoo {
		options = append(options, leaderelection.WithKazooNames())
	}
	return func(ctx context.Context) (hold, error) {
		e, err := leaderelection.NewElection(conn, path, options...)
		if err != nil {
			return nil, err
		}
		over := make(chan error, 1)
		go func() { over <- e.ElectLeader() }()
		for {
			select {
			case s := <-e.Status():
				if s.Role == leaderelection.Leader {
					return leadershipHold{s.Leadership, e, over}, nil
				}
				if s.Err != nil {
					return nil, s.Err
				}
			case <-ctx.Done():
				_ = e.Resign()
				<-over
				return nil, ctx.Err()
			}
		}
	}
}

// leadershipHold is a leadership that implements hold: Release ends the candidacy.
type leadershipHold struct {
	*leaderelection.Leadership
	election *leaderelection.Election
	over     <-chan error
}

func (l leadershipHold) Release() error {
	err := l.election.Resign()
	for end := time.Now().Add(time.Minute); errors.Is(err, leaderelection.ErrUnconfirmed) && time.Now().Before(end); {
		err = l.election.Resign() // repeat Resign, because the servers have not answered within two seconds
	}
	return errors.Join(err, <-l.over)
}

// forBothPeers runs a test with kazoo and with Curator, each as a subtest.
func forBothPeers(t *testing.T, kind string, open func(*peer) func(*testing.T, *zk.Conn, string) acquireFunc, test func(*testing.T, contention)) {
	for _, p := range []*peer{kazoo, curator} {
		t.Run(p.name, func(t *testing.T) { test(t, contention{peer: p, kind: kind, open: open(p)}) })
	}
}

type lockOpener = func(*testing.T, *zk.Conn, string) acquireFunc

// TestMutex_ExcludesPeer checks that a mutex in Go and a mutex of a peer exclude each other, and that each is granted
// after the other was released.
func TestMutex_ExcludesPeer(t *testing.T) {
	forBothPeers(t, "mutex", func(p *peer) lockOpener { return p.newMutex }, func(t *testing.T, m contention) {
		t.Run("exclusion", func(t *testing.T) { m.testExclusion(t, 20) })
		t.Run("hand-over", m.testHandOver)
	})
}

// TestMutex_ExcludesLeaderSelectorOfCurator checks that a mutex in Go and Curator's LeaderSelector, which uses a
// mutex, exclude each other.
func TestMutex_ExcludesLeaderSelectorOfCurator(t *testing.T) {
	m := contention{peer: curator, kind: "selector", open: curator.newMutex}
	t.Run("exclusion", func(t *testing.T) { m.testExclusion(t, 5) })
	t.Run("hand-over", m.testHandOver)
}

// TestElection_ExcludesLeaderOfPeer checks that a candidate in Go and a candidate of a peer are never leaders at the
// same time, and that each becomes leader after the other has left.
func TestElection_ExcludesLeaderOfPeer(t *testing.T) {
	forBothPeers(t, "latch", func(p *peer) lockOpener { return p.newLeadership }, func(t *testing.T, m contention) {
		t.Run("exclusion", func(t *testing.T) { m.testExclusion(t, 10) })
		t.Run("hand-over", m.testHandOver)
	})
}

// TestMonitor_ReportsOverlappingHolders checks that the monitor of these tests reports two participants that hold a
// mutex at the same time. The peer locks another path, so that ZooKeeper does not exclude the peer.
func TestMonitor_ReportsOverlappingHolders(t *testing.T) {
	forBothPeers(t, "mutex", func(p *peer) lockOpener { return p.newMutex }, func(t *testing.T, m contention) {
		m.peer.requirePeer(t)
		r := exclusionMonitor.newUncheckedResource(t, 1, true)
		m.path = testenv.NewPath(t)
		done := acquireRepeatedly(t, m.open(t, connect(t), m.path), r, "go", "write", 1)
		v := r.waitHolder(t, "go")
		m.path += "-other"
		other := m.startPeer(t, 0, r, m.peer.name, 1)
		w := r.waitHolder(t, m.peer.name)
		require.Equal(t, []string{"held together: " + joinSorted("go to write", m.peer.name+" to write")}, r.listViolations())
		v.release()
		w.release()
		done()
		other.wait(t)
	})
}

func joinSorted(a, b string) string {
	return min(a, b) + ", " + max(a, b)
}
