package queue

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestLossReason_ReportsExpiredSessionOrLease checks that lossReason reports a claim as lost if its session or
// its lease has expired, even if the lease is valid again.
func TestLossReason_ReportsExpiredSessionOrLease(t *testing.T) {
	assigned := &delivery{session: 7, assigned: true, lapses: 3}
	claimed := &delivery{session: 7}
	for name, c := range map[string]struct {
		item  *delivery
		state connection.State
		want  error
	}{
		"the lease is valid":                                 {assigned, connection.State{Session: 7, Proven: true, Lapses: 3}, nil},
		"the lease has expired":                              {assigned, connection.State{Session: 7, Lapses: 4}, recipes.ErrLeaseExpired},
		"the lease had expired and is valid again":           {assigned, connection.State{Session: 7, Proven: true, Lapses: 4}, recipes.ErrLeaseExpired},
		"the lease expired before the item was handed out":   {claimed, connection.State{Session: 7, Lapses: 1}, nil},
		"the connection has another session":                 {assigned, connection.State{Session: 8, Proven: true, Lapses: 3}, recipes.ErrSessionExpired},
		"the session is lost before the item was handed out": {claimed, connection.State{Session: 0}, recipes.ErrSessionExpired},
		"the connection is closed":                           {assigned, connection.State{Session: 7, Closed: true}, recipes.ErrConnClosed},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, c.item.lossReason(c.state), c.want)
		})
	}
}

// TestLease_ExpiresBeforeNextClaim checks that a consumer that is cut off from the servers learns that its item
// is lost before another consumer can claim the item, and that it cannot write for the item any more.
func TestLease_ExpiresBeforeNextClaim(t *testing.T) {
	for name, fault := range map[string]func(srv *zktest.Server, session int64){
		"black hole": func(srv *zktest.Server, session int64) { srv.Blackhole(zktest.BothWays, session) },
		"partition":  func(srv *zktest.Server, session int64) { srv.Partition(session) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *bubble.Test) {
				q, other := newQueue(h), newQueue(h)
				putItems(h, q, "one")
				item := takeItem(h, q, "one")
				begin := time.Now()
				fault(h.Server, q.conn.SessionID())
				var notified time.Duration
				var waiting sync.WaitGroup
				waiting.Go(func() {
					<-item.Done()
					notified = time.Since(begin)
				})
				again := awaitItem(h, other, "one")
				taken := time.Since(begin)
				waiting.Wait()
				require.Less(h, notified, taken)
				require.ErrorIs(h, item.Err(), recipes.ErrLeaseExpired)
				require.Equal(h, 2, again.Attempt())
				require.ErrorIs(h, item.Ack(), recipes.ErrNotHeld)
				_, err := item.Multi()
				require.ErrorIs(h, err, recipes.ErrNotHeld)
				h.Server.Heal(q.conn.SessionID())
				bubble.Advance(10 * time.Second)
				require.NoError(h, again.Err())
				require.NoError(h, again.Ack())
			})
		})
	}
}

// TestLease_ExpiryReturnsItemInSameSession checks that an item is lost if the lease expires although the
// session survives, and that the consumer returns the item to the queue when a server answers.
func TestLease_ExpiryReturnsItemInSameSession(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q, other := newQueue(h), newQueue(h)
		putItems(h, q, "one")
		item := takeItem(h, q, "one")
		session := q.conn.SessionID()
		h.Server.Blackhole(zktest.ToClient, session)
		<-item.Done()
		require.ErrorIs(h, item.Err(), recipes.ErrLeaseExpired)
		h.Server.Heal(session)
		again := awaitItem(h, other, "one")
		require.Equal(h, session, q.conn.SessionID())
		require.Equal(h, 2, again.Attempt())
	})
}

// TestItem_IsLostIfSessionChangesWithoutEvent checks that the items of the previous session are lost if the
// client library starts a new session without an event, and that nothing is written for them in the new
// session.
// Scenario 18 of docs/traps.md.
func TestItem_IsLostIfSessionChangesWithoutEvent(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		putItems(h, q, "one")
		item := takeItem(h, q, "one")
		require.NoError(h, h.Server.ExpireSession(q.conn.SessionID()))
		require.ErrorIs(h, bubble.Repeated(func() error { return item.Ack() }), recipes.ErrNotHeld)
		<-item.Done()
		require.ErrorIs(h, item.Err(), recipes.ErrSessionExpired)
		again := awaitItem(h, q, "one")
		require.Equal(h, 2, again.Attempt())
		require.ErrorIs(h, item.Ack(), recipes.ErrNotHeld)
		_, err := item.Multi()
		require.ErrorIs(h, err, recipes.ErrNotHeld)
		require.NoError(h, again.Err(), "the previous delivery does not affect the next one")
		require.NoError(h, again.Ack())
	})
}
