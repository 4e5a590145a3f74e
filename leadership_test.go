package leaderelection_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestLeadership_TokensIncrease fails if the token does not increase with each leader, also if the
// election is re-created at the same path, so that sequence numbers restart.
func TestLeadership_TokensIncrease(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		var last int64
		for i := range 6 {
			c := h.join(h.connect())
			grant := c.requireLeads()
			_, stat, err := h.operator.Exists(c.ID())
			require.NoError(h, err)
			require.Equal(h, stat.Czxid, grant.Token())
			require.Greater(h, grant.Token(), last)
			last = grant.Token()
			if i == 2 {
				require.NoError(h, c.EndElection())
				_, err = h.operator.Create(node, nil, 0, openACL)
				require.NoError(h, err)
				continue
			}
			require.NoError(h, c.Resign())
		}
	})
}

// TestLeadership_DoneBeforeSuspended fails if the status Suspended is published before Done is
// closed.
func TestLeadership_DoneBeforeSuspended(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		var leadership atomic.Pointer[leaderelection.Leadership]
		var suspended, early atomic.Int64
		conn := h.connect()
		c := h.join(conn, onStatus(func(s leaderelection.Status) {
			switch s.Role {
			case leaderelection.Leader:
				leadership.Store(s.Leadership)
			case leaderelection.Suspended:
				suspended.Add(1)
				if leadership.Load().Context().Err() == nil {
					early.Add(1)
				}
			}
		}))
		c.requireLeads()
		h.srv.Blackhole(zktest.BothWays, conn.SessionID())
		h.advance(timeout * 3 / 4)
		require.EqualValues(h, 1, suspended.Load())
		require.Zero(h, early.Load())
	})
}

// CURATOR-206, kazoo #2, go-zookeeper #190: the holder is not notified that it has lost the lock.
func TestTrap14_DoneIsClosed(t *testing.T) {
	for _, end := range []struct {
		name   string
		do     func(h *harness, c *candidate)
		reason error // of the leadership
		final  error // of the candidacy
	}{
		{"resigned", func(h *harness, c *candidate) {
			require.NoError(h, c.Resign())
		}, leaderelection.ErrResigned, nil},
		{"znode deleted", func(h *harness, c *candidate) {
			h.remove(c.ID())
		}, leaderelection.ErrDeleted, leaderelection.ErrDeleted},
		{"election over", func(h *harness, c *candidate) {
			require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		}, leaderelection.ErrDeleted, leaderelection.ErrElectionOver},
		{"election ended by the leader", func(h *harness, c *candidate) {
			require.NoError(h, c.EndElection())
		}, leaderelection.ErrDeleted, leaderelection.ErrElectionOver},
		{"connection closed", func(_ *harness, c *candidate) {
			c.conn.Close()
		}, leaderelection.ErrDeleted, leaderelection.ErrConnClosed},
	} {
		t.Run(end.name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				c := h.join(h.connect())
				l := c.requireLeads()
				done := async(func() time.Time { <-l.Done(); return time.Now() })
				h.advance(timeout / 3)
				start := time.Now()
				end.do(h, c)
				h.advance(2 * shortTime)
				require.WithinDuration(h, start, receive(h, done), shortTime)
				require.ErrorIs(h, l.Err(), end.reason)
				if end.final == nil {
					require.NoError(h, c.requireOver())
				} else {
					require.ErrorIs(h, c.requireOver(), end.final)
				}
				require.Equal(h, leaderelection.Follower, c.Current().Role)
			})
		})
	}
}

// Curator's InterProcessMutex records its holder in the process, and still reports it after the
// session has expired. Here no method does.
func TestTrap15_LostLeadership(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		c, next := h.join(h.connect()), h.join(h.connect())
		l := c.requireLeads()
		h.expire(c.conn)
		h.advance(0)
		next.requireLeads()
		require.Error(h, l.Err())
		h.advance(timeout)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
		require.Equal(h, leaderelection.Follower, c.Current().Role)
		require.Nil(h, c.Current().Leadership)
		require.ErrorIs(h, c.ElectLeader(), leaderelection.ErrAlreadyStarted)
		_, err := c.multi()
		require.ErrorIs(h, err, leaderelection.ErrNotLeader)
		require.NoError(h, c.Resign())
		h.requireIDs(next.ID())
	})
}

// druid PR 17546: the next leadership begins before the previous one has ended.
func TestTrap42_LeadershipsDoNotOverlap(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		c := h.join(h.connect(), leaderelection.WithRejoin())
		terms := []*leaderelection.Leadership{c.requireLeads()}
		for range 2 { // suspended and resumed
			h.advance(timeout)
			h.eachServer(func(s *zktest.Server) { s.Blackhole(zktest.BothWays, c.conn.SessionID()) })
			h.advance(timeout)
			terms = append(terms, c.requireLeads())
			require.Equal(h, terms[0].Token(), c.requireLeads().Token())
		}
		h.expire(c.conn)
		h.advance(timeout)
		terms = append(terms, c.requireLeads())
		require.Greater(h, c.requireLeads().Token(), terms[0].Token())
		for _, l := range terms[:3] {
			require.Error(h, l.Err())
		}
		// Each leadership was delivered once, and another status between two of them.
		var delivered []*leaderelection.Leadership
		for i, s := range c.received() {
			if s.Role == leaderelection.Leader {
				require.True(h, i == 0 || c.received()[i-1].Role != leaderelection.Leader)
				delivered = append(delivered, s.Leadership)
			}
		}
		require.Len(h, delivered, len(terms))
		for i := range terms {
			require.Same(h, terms[i], delivered[i])
		}
	})
}
