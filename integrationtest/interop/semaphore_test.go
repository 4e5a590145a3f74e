package interop

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes/lock"
)

func (p *peer) semaphore(t *testing.T, conn *zk.Conn, path string, limit int) *lock.Semaphore {
	make := lock.NewCuratorSemaphore
	if p == kazoo {
		make = lock.NewSemaphore
	}
	s, err := make(conn, path, limit, p.layout())
	require.NoError(t, err)
	return s
}

func (p *peer) leasing(limit int) opener {
	return func(t *testing.T, conn *zk.Conn, path string) entrance {
		s := p.semaphore(t, conn, path, limit)
		return func(ctx context.Context) (hold, error) {
			return granted(s.Acquire(ctx, 1))
		}
	}
}

func TestSemaphore(t *testing.T) {
	for _, p := range []*peer{kazoo, curator} {
		t.Run(p.name, func(t *testing.T) {
			const limit = 2
			m := matter{peer: p, kind: "semaphore", max: limit, open: p.leasing(limit)}
			m.line = "/locks"
			if p == kazoo {
				m.line = "-__lock__"
			}
			t.Run("exclusion", func(t *testing.T) { m.exclusion(t, 10) })
			one := m
			one.max, one.open = 1, p.leasing(1)
			t.Run("hand-over of one lease", one.handOver)
			t.Run("leases together", func(t *testing.T) { leasesTogether(t, m) })
		})
	}
}

// leasesTogether has each side hold one of two leases, and each side wait for the one
// of the other.
func leasesTogether(t *testing.T, m matter) {
	m.peer.use(t)
	m.path = newPath(t)
	r, conn := judge.room(t, m.max, true), connect(t)
	open := m.open(t, conn, m.path)
	first := visits(t, open, r, "go1", "write", 1)
	g := r.next(t, "go1")
	peer1 := m.contend(t, 0, r, "peer1", 1)
	p := r.next(t, "peer1")
	require.Equal(t, 2, r.most)
	m.inLine(t, conn, 2)

	peer2 := m.contend(t, 1, r, "peer2", 1)
	m.inLine(t, conn, 3)
	second := visits(t, open, r, "go2", "write", 1)
	m.inLine(t, conn, 4)
	r.nobody(t)
	g.letGo() // Go's lease goes to the peer
	first()
	v := r.next(t, "peer2")
	r.nobody(t)
	p.letGo() // and the peer's to Go
	peer1.ok(t)
	w := r.next(t, "go2")
	v.letGo()
	w.letGo()
	peer2.ok(t)
	second()
}
