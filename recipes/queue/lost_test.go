package queue

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/grant"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// The holder is told before anybody else can have the item, and cannot write any
// more when somebody has.
func TestHolderOutOfReachIsTold(t *testing.T) {
	for name, fault := range map[string]func(srv *zktest.Server, session int64){
		"black hole": func(srv *zktest.Server, session int64) { srv.Blackhole(zktest.BothWays, session) },
		"partition":  func(srv *zktest.Server, session int64) { srv.Partition(session) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				ctx, conn := w.Context(), w.connect()
				q, other := w.newQueue(conn, Config{}), w.queue()
				w.put(q, "one")
				item := w.take(q, "one")
				begin := time.Now()
				fault(w.srv, conn.SessionID())
				var told time.Duration
				var waiting sync.WaitGroup
				waiting.Go(func() {
					<-item.Done()
					told = time.Since(begin)
				})
				again, err := other.Take(ctx)
				require.NoError(t, err)
				taken := time.Since(begin)
				waiting.Wait()
				require.Less(t, told, taken)
				require.ErrorIs(t, item.Err(), recipes.ErrLeaseExpired)
				require.Equal(t, 2, again.Attempt())
				require.ErrorIs(t, item.Ack(ctx), ErrClaimLost)
				_, err = item.Multi()
				require.ErrorIs(t, err, ErrClaimLost)
				w.srv.Heal(conn.SessionID())
				w.pass(10 * time.Second)
				require.NoError(t, again.Err())
				require.NoError(t, again.Ack(ctx))
			})
		})
	}
}

// A lapse that the session survives: the item is lost all the same, and goes back
// as soon as somebody answers.
func TestLapse(t *testing.T) {
	play(t, func(w *world) {
		ctx, conn := w.Context(), w.connect()
		q, other := w.newQueue(conn, Config{}), w.queue()
		w.put(q, "one")
		item := w.take(q, "one")
		session := conn.SessionID()
		w.srv.Blackhole(zktest.ToClient, session)
		<-item.Done()
		require.ErrorIs(t, item.Err(), recipes.ErrLeaseExpired)
		w.srv.Heal(session)
		again, err := other.Take(ctx)
		require.NoError(t, err)
		require.Equal(t, session, conn.SessionID())
		require.Equal(t, 2, again.Attempt())
	})
}

// An acknowledgement that was sent before the session ended, and carried out
// after: it must not be. Here the holder is wrong about its lease.
func TestAckOfAnotherSession(t *testing.T) {
	play(t, func(w *world) {
		ctx, conn := w.Context(), w.connect()
		q, other := w.newQueue(conn, Config{}), w.queue()
		w.put(q, "one")
		item := w.take(q, "one")
		item.d.grant, item.d.end = endless(item.d.token)
		w.srv.Refuse(true)
		w.srv.DropConnections(conn.SessionID())
		w.pass(0)
		var acking sync.WaitGroup
		acking.Go(func() { require.ErrorIs(t, item.Ack(ctx), ErrClaimLost) })
		require.NoError(t, w.srv.ExpireSession(conn.SessionID()))
		again := w.take(other, "one")
		w.srv.Refuse(false)
		acking.Wait()
		require.NoError(t, again.Ack(ctx))
	})
}

// endless is the grant of a holder who does not hear of its end.
func endless(token int64) (*grant.Grant, context.CancelCauseFunc) { return grant.New(token, nil) }

// What is lost before it is read is not delivered.
func TestLostUnread(t *testing.T) {
	play(t, func(w *world) {
		ctx, conn := w.Context(), w.connect()
		q, other := w.newQueue(conn, Config{Prefetch: 3}), w.queue()
		w.put(other, "one", "two", "three")
		items := q.Consume(ctx)
		w.pass(time.Second)
		session := conn.SessionID()
		w.srv.Blackhole(zktest.ToClient, session)
		w.pass(timeout)
		w.srv.Heal(session)
		var payloads []string
		for range 3 {
			item := <-items
			require.NoError(t, item.Err())
			require.Equal(t, 1, item.Attempt())
			payloads = append(payloads, string(item.Data()))
		}
		require.ElementsMatch(t, []string{"one", "two", "three"}, payloads)
	})
}

// The consumer goes on in the next session.
func TestConsumeOverSessions(t *testing.T) {
	play(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		conn := w.connect()
		q, other := w.newQueue(conn, Config{}), w.queue()
		items := q.Consume(ctx)
		for i := range 5 {
			w.put(other, "one")
			item := <-items
			require.NoError(t, w.srv.ExpireSession(conn.SessionID()))
			<-item.Done()
			require.ErrorIs(t, item.Err(), recipes.ErrSessionExpired)
			item = <-items
			require.Equal(t, 2, item.Attempt())
			require.NoError(t, item.Ack(ctx), "session %d", i)
		}
		cancel()
		w.pass(0)
		require.NoError(t, q.Err())
	})
}

func TestClose(t *testing.T) {
	play(t, func(w *world) {
		ctx := w.Context()
		q, other := w.newQueue(w.connect(), Config{Prefetch: 2}), w.queue()
		w.put(other, "one", "two", "three", "four", "five")
		first, second := w.take(q, "one"), w.take(q, "two")
		require.NoError(t, first.Ack(ctx))
		items := q.Consume(ctx)
		w.pass(time.Second)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			require.NoError(t, q.Close(ctx))
		})
		<-second.Done()
		require.ErrorIs(t, second.Err(), ErrClosed)
		waiting.Wait()
		require.NoError(t, q.Close(ctx), "again")
		_, open := <-items
		require.False(t, open)
		require.ErrorIs(t, q.Err(), ErrClosed)

		require.NoError(t, first.Ack(ctx), "it is acknowledged")
		require.ErrorIs(t, second.Ack(ctx), ErrClaimLost)
		require.ErrorIs(t, second.Ack(ctx), ErrClosed)
		require.ErrorIs(t, second.Return(ctx, nil), ErrClaimLost)
		_, err := second.Multi()
		require.ErrorIs(t, err, ErrClaimLost)
		_, err = q.Take(ctx)
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, q.Put(ctx, nil), ErrClosed)
		_, open = <-q.Consume(ctx)
		require.False(t, open)

		require.Equal(t, 2, w.take(other, "two").Attempt())
		require.Equal(t, 1, w.take(other, "three").Attempt(), "it was not read")
	})
}

// Close cannot confirm anything while nobody answers, and goes on.
func TestCloseWhileDisconnected(t *testing.T) {
	play(t, func(w *world) {
		conn := w.connect()
		q := w.newQueue(conn, Config{})
		w.put(q, "one")
		item := w.take(q, "one")
		w.srv.Refuse(true)
		w.srv.DropConnections(conn.SessionID())
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		err := q.Close(ctx)
		require.ErrorIs(t, err, recipes.ErrUnconfirmed)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, item.Err(), ErrClosed)
		w.srv.Refuse(false)
		require.NoError(t, q.Close(w.Context()))
		require.NotContains(t, w.srv.Tree(), "ephemeral")
		_, stat, err := w.connect().Get("/jobs/queue-0000000000")
		require.NoError(t, err)
		require.EqualValues(t, 2, stat.Cversion, "no attempt was added")
	})
}

// The owner closes the connection first.
func TestConnectionIsClosed(t *testing.T) {
	play(t, func(w *world) {
		ctx, conn := w.Context(), w.connect()
		q, other := w.newQueue(conn, Config{}), w.queue()
		w.put(q, "one", "two")
		item := w.take(q, "one")
		items := q.Consume(ctx)
		w.pass(time.Second)
		conn.Close()
		<-item.Done()
		require.ErrorIs(t, item.Err(), recipes.ErrConnClosed)
		for range items {
			t.Error("nothing can be handed out any more")
		}
		require.ErrorIs(t, q.Err(), recipes.ErrConnClosed)
		_, err := q.Take(ctx)
		require.ErrorIs(t, err, recipes.ErrConnClosed)
		require.ErrorIs(t, q.Put(ctx, nil), recipes.ErrConnClosed)
		require.ErrorIs(t, item.Ack(ctx), ErrClaimLost)
		err = q.Close(ctx)
		require.ErrorIs(t, err, recipes.ErrUnconfirmed)
		require.ErrorIs(t, err, recipes.ErrConnClosed)
		require.Equal(t, 2, w.take(other, "one").Attempt())
	})
}

// A consumer that may not do what it needs is told, and may try again.
func TestNotPermitted(t *testing.T) {
	play(t, func(w *world) {
		ctx, conn := w.Context(), w.connect()
		_, err := conn.Create("/jobs-claims", nil, 0, zk.WorldACL(zk.PermRead))
		require.NoError(t, err)
		q := w.newQueue(conn, Config{})
		require.ErrorIs(t, q.Put(ctx, nil), recipes.ErrPermission)
		_, err = conn.Create("/jobs", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		_, err = conn.Create("/jobs/queue-", encode([]byte("one")), zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		for range q.Consume(ctx) {
			t.Error("nothing can be claimed")
		}
		require.ErrorIs(t, q.Err(), recipes.ErrPermission)
		_, err = q.Take(ctx)
		require.ErrorIs(t, err, recipes.ErrPermission)
		require.NoError(t, conn.Delete("/jobs-claims", -1))
		w.take(q, "one")
	})
}
