package interop

import (
	"context"
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
)

// layout is that of what Go shares with the peer.
func (p *peer) layout() recipes.Option {
	if p == kazoo {
		return recipes.WithLayout(recipes.Kazoo)
	}
	return recipes.WithLayout(recipes.Curator)
}

// granted is h as a hold, which is nil if there was an error.
func granted[H hold](h H, err error) (hold, error) {
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (p *peer) mutex(t *testing.T, conn *zk.Conn, path string) entrance {
	m, err := lock.NewMutex(conn, path, p.layout())
	require.NoError(t, err)
	return func(ctx context.Context) (hold, error) {
		return granted(m.Lock(ctx))
	}
}

func (p *peer) rwMutex(t *testing.T, conn *zk.Conn, path string) *lock.RWMutex {
	m, err := lock.NewRWMutex(conn, path, p.layout())
	require.NoError(t, err)
	return m
}

func (p *peer) writing(t *testing.T, conn *zk.Conn, path string) entrance {
	m := p.rwMutex(t, conn, path)
	return func(ctx context.Context) (hold, error) {
		return granted(m.Lock(ctx))
	}
}

func (p *peer) reading(t *testing.T, conn *zk.Conn, path string) entrance {
	m := p.rwMutex(t, conn, path)
	return func(ctx context.Context) (hold, error) {
		return granted(m.RLock(ctx))
	}
}

func (p *peer) leading(t *testing.T, conn *zk.Conn, path string) entrance {
	naming := leaderelection.CuratorLatch
	if p == kazoo {
		naming = leaderelection.Kazoo
	}
	return func(ctx context.Context) (hold, error) {
		e, err := leaderelection.NewElection(conn, path, leaderelection.WithCreateNode(), leaderelection.WithNaming(naming),
			leaderelection.WithSessionTimeout(sessionTimeout))
		if err != nil {
			return nil, err
		}
		over := make(chan error, 1)
		go func() { over <- e.ElectLeader() }()
		for {
			select {
			case s := <-e.Status():
				if s.Role == leaderelection.Leader {
					return leading{s.Leadership, e, over}, nil
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

// leading is a leadership that ends with the candidacy.
type leading struct {
	*leaderelection.Leadership
	election *leaderelection.Election
	over     <-chan error
}

func (l leading) Release(context.Context) error {
	return errors.Join(l.election.Resign(), <-l.over)
}

// both runs a test of what both peers can contend for.
func both(t *testing.T, kind string, open func(*peer) func(*testing.T, *zk.Conn, string) entrance, test func(*testing.T, matter)) {
	for _, p := range []*peer{kazoo, curator} {
		t.Run(p.name, func(t *testing.T) { test(t, matter{peer: p, kind: kind, open: open(p)}) })
	}
}

type opener = func(*testing.T, *zk.Conn, string) entrance

func TestMutex(t *testing.T) {
	both(t, "mutex", func(p *peer) opener { return p.mutex }, func(t *testing.T, m matter) {
		t.Run("exclusion", func(t *testing.T) { m.exclusion(t, 20) })
		t.Run("hand-over", m.handOver)
	})
}

// Curator's LeaderSelector stands in the line of a mutex.
func TestMutexWithLeaderSelector(t *testing.T) {
	m := matter{peer: curator, kind: "selector", open: curator.mutex}
	t.Run("exclusion", func(t *testing.T) { m.exclusion(t, 5) })
	t.Run("hand-over", m.handOver)
}

func TestElection(t *testing.T) {
	both(t, "latch", func(p *peer) opener { return p.leading }, func(t *testing.T, m matter) {
		t.Run("exclusion", func(t *testing.T) { m.exclusion(t, 10) })
		t.Run("hand-over", m.handOver)
	})
}

// One side that looks for the lock elsewhere is not excluded, and the oracle says so.
func TestOracleSeesOverlap(t *testing.T) {
	both(t, "mutex", func(p *peer) opener { return p.mutex }, func(t *testing.T, m matter) {
		m.peer.use(t)
		r := judge.unguarded(t, 1, true)
		m.path = newPath(t)
		done := visits(t, m.open(t, connect(t), m.path), r, "go", "write", 1)
		v := r.next(t, "go")
		m.path += "-elsewhere"
		other := m.contend(t, 0, r, m.peer.name, 1)
		w := r.next(t, m.peer.name)
		require.Equal(t, []string{"inside together: " + sorted("go to write", m.peer.name+" to write")}, r.violations())
		v.letGo()
		w.letGo()
		done()
		other.ok(t)
	})
}

func sorted(a, b string) string {
	return min(a, b) + ", " + max(a, b)
}
