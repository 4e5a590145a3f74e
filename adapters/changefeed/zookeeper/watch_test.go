package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

func testWatch(t *testing.T, e *ensemble.Ensemble) {
	conn := connect(t, e.Addrs()...)

	// Fails if a write is lost that happens while the connection is down: a watch does not fire
	// when its connection breaks.
	t.Run("Disconnected", func(t *testing.T) {
		p := newProxy(t, e.Addr(0))
		path := newPath()
		s, r := createRecord(t, conn, path)
		f := fixture.SubscribeTo(t, newStore(t, connect(t, p.Addr()), path), r)
		p.Blackhole(zkproxy.Both)
		r = fixture.Heartbeat(t, s, r)
		p.DropConnections()
		r = fixture.Heartbeat(t, s, r)
		p.Unblackhole()
		fixture.AwaitRecord(t, f, r)
		fixture.AwaitRecord(t, f, fixture.Heartbeat(t, s, r))
	})

	// Fails if a feed does not continue in the next session: the watches of the expired session
	// do not exist any more.
	t.Run("SessionExpired", func(t *testing.T) {
		p := newProxy(t, e.Addr(0))
		path := newPath()
		s, r := createRecord(t, conn, path)
		other := connect(t, p.Addr())
		f := fixture.SubscribeTo(t, newStore(t, other, path), r)
		require.NoError(t, p.ExpireSession(other.SessionID()))
		r = fixture.Heartbeat(t, s, r)
		fixture.AwaitRecord(t, f, r)
		fixture.AwaitRecord(t, f, fixture.Heartbeat(t, s, r))
	})

	// Fails if a change between two watches is missed, it is delivered twice, or a feed sends more
	// than the documented one read for each heartbeat.
	t.Run("OneReadForEachHeartbeat", func(t *testing.T) {
		p := newProxy(t, e.Addr(0))
		path := newPath()
		s, r := createRecord(t, conn, path)
		f := fixture.SubscribeTo(t, newStore(t, connect(t, p.Addr()), path), r)
		before := p.Count(zkproxy.OpGetData)
		const n = 20
		for range n {
			r = fixture.Heartbeat(t, s, r)
			fixture.AwaitRecord(t, f, r)
		}
		require.Equal(t, n, p.Count(zkproxy.OpGetData)-before)
		for range n {
			r = fixture.Heartbeat(t, s, r)
		}
		fixture.AwaitRecord(t, f, r)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, err := f.Next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
