package zookeeper

// What goes wrong with records in ZooKeeper if nobody sees to it.

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func proxy(t testing.TB, target string) *zkproxy.Proxy {
	t.Helper()
	p, err := zkproxy.New(target)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func subscribe(t testing.TB, s *Store) changefeed.Feed {
	t.Helper()
	f, err := s.Subscribe(ctx(t))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func traps(t *testing.T, e *ensemble.Ensemble) {
	conn := connect(t, e.Addrs()...)

	// The client library's requests take no context, and wait for as long as the server
	// says nothing.
	t.Run("RequestsWithoutContext", func(t *testing.T) {
		s, r := created(t, conn, place())
		f := subscribe(t, s)
		tells(t, f, r)
		require.NoError(t, e.Pause(0))
		resume := func() { require.NoError(t, e.Resume(0)) }
		defer resume()
		for name, call := range map[string]func(context.Context) error{
			"Heartbeat": func(ctx context.Context) error { _, err := s.Heartbeat(ctx, r, r); return err },
			"Read":      func(ctx context.Context) error { _, err := s.Read(ctx); return err },
			"Create":    func(ctx context.Context) error { return s.Create(ctx, blank) },
			"Start":     s.Start,
			"Next":      func(ctx context.Context) error { _, err := f.Next(ctx); return err },
		} {
			begin := time.Now()
			short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			err := call(short)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.Less(t, time.Since(begin), 10*time.Second, name)
		}
		ended := make(chan error, 1)
		go func() { _, err := s.Read(context.Background()); ended <- err }()
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-ended, changefeed.ErrClosed)
	})

	// The reply is lost, and the write is not.
	t.Run("LostReply", func(t *testing.T) {
		p := proxy(t, e.Addr(0))
		path := place()
		s, r := created(t, connect(t, p.Addr()), path)
		p.On(zkproxy.Rule{Op: zkproxy.OpMulti, Action: zkproxy.CutAfterApplied})
		next := r
		next.Seq, next.Leader = 2, "me"
		_, err := s.Heartbeat(ctx(t), r, next)
		require.Error(t, err)
		for _, known := range []error{changefeed.ErrConflict, changefeed.ErrNoRecord, changefeed.ErrUnsuitable} {
			require.NotErrorIs(t, err, known, "it says more than can be known")
		}
		now, err := s.Read(ctx(t))
		require.NoError(t, err)
		require.Equal(t, "me", now.Leader)
		beat(t, s, now)
	})

	// A watch says nothing when the connection breaks. It fires after a reconnect if
	// something was missed.
	t.Run("SilentWhileDisconnected", func(t *testing.T) {
		p := proxy(t, e.Addr(0))
		path := place()
		s, r := created(t, conn, path)
		f := subscribe(t, newStore(t, connect(t, p.Addr()), path))
		tells(t, f, r)
		p.Blackhole(zkproxy.Both)
		r = beat(t, s, r)
		p.DropConnections()
		r = beat(t, s, r)
		p.Unblackhole()
		tells(t, f, r)
		tells(t, f, beat(t, s, r))
	})

	// All watches are gone with the session: the feed says that it has ended.
	t.Run("SessionExpired", func(t *testing.T) {
		p := proxy(t, e.Addr(0))
		path := place()
		s, r := created(t, conn, path)
		mine := connect(t, p.Addr())
		own := newStore(t, mine, path)
		f := subscribe(t, own)
		tells(t, f, r)
		require.NoError(t, p.ExpireSession(mine.SessionID()))
		_, err := f.Next(ctx(t))
		require.ErrorIs(t, err, zk.ErrSessionExpired)
		_, err = f.Next(ctx(t))
		require.ErrorIs(t, err, zk.ErrSessionExpired, "the second time")
		r = beat(t, s, r)
		f = subscribe(t, own) // in the session that the client has opened by itself
		for {
			if ev, err := f.Next(ctx(t)); err == nil {
				require.Equal(t, r.Version, ev.Record.Version)
				break
			}
			f = subscribe(t, own)
		}
	})

	// A watch fires once: nothing that follows it is missed, and one that was missed is
	// not told twice.
	t.Run("WatchesFireOnce", func(t *testing.T) {
		p := proxy(t, e.Addr(0))
		path := place()
		s, r := created(t, conn, path)
		f := subscribe(t, newStore(t, connect(t, p.Addr()), path))
		tells(t, f, r)
		before := p.Count(zkproxy.OpGetData)
		const n = 20
		for range n {
			r = beat(t, s, r)
			tells(t, f, r)
		}
		require.Equal(t, n, p.Count(zkproxy.OpGetData)-before, "one read for each heartbeat, as documented")
		for range n {
			r = beat(t, s, r)
		}
		tells(t, f, r)
		short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, err := f.Next(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})

	// A znode that was made anew counts its versions anew.
	t.Run("VersionsBeginAnew", func(t *testing.T) {
		path := place()
		s, r := created(t, conn, path)
		remove(t, conn, path)
		other := blank
		other.Epoch = "two"
		require.NoError(t, s.Create(ctx(t), other))
		now, err := s.Read(ctx(t))
		require.NoError(t, err)
		_, version, err := parse(r.Version)
		require.NoError(t, err)
		_, anew, err := parse(now.Version)
		require.NoError(t, err)
		require.Equal(t, version, anew, "ZooKeeper tells the two apart by itself")
		_, err = s.Heartbeat(ctx(t), r, r)
		require.ErrorIs(t, err, changefeed.ErrConflict)
		after, err := s.Read(ctx(t))
		require.NoError(t, err)
		require.Equal(t, now, after)
	})

	// A deletion takes two steps, and may stop between them.
	t.Run("HalfDeleted", func(t *testing.T) {
		path := place()
		s, r := created(t, conn, path)
		f := subscribe(t, s)
		tells(t, f, r)
		require.NoError(t, conn.Delete(s.mark(blank.Epoch), -1))
		_, err := s.Read(ctx(t))
		require.ErrorIs(t, err, changefeed.ErrNoRecord)
		_, err = s.Heartbeat(ctx(t), r, r)
		require.ErrorIs(t, err, changefeed.ErrNoRecord)
		require.NoError(t, s.Start(ctx(t)))
		first, err := subscribe(t, s).Next(ctx(t))
		require.NoError(t, err)
		require.True(t, first.Missing)

		two := blank
		two.Epoch = "two"
		require.NoError(t, s.Create(ctx(t), two))
		require.NoError(t, s.Create(ctx(t), blank))
		now, err := s.Read(ctx(t))
		require.NoError(t, err)
		require.Equal(t, "two", now.Epoch)
		tells(t, f, now)
		requireTree(t, conn, path, "", "/epoch-two")
	})

	t.Run("WhatIsNoVersion", func(t *testing.T) {
		s, r := created(t, conn, place())
		for _, v := range []string{"", "1", "x.y", "99999999999999999999.1"} {
			bad := r
			bad.Version = v
			_, err := s.Heartbeat(ctx(t), bad, r)
			require.ErrorIs(t, err, changefeed.ErrConflict, v)
		}
	})

	// A heartbeat that begins an epoch takes the mark along.
	t.Run("EpochFollows", func(t *testing.T) {
		path := place()
		s, first := created(t, conn, path)
		next := first
		next.Epoch, next.Seq = "two", 1
		second, err := s.Heartbeat(ctx(t), first, next)
		require.NoError(t, err)
		requireTree(t, conn, path, "", "/epoch-two")
		_, err = s.Heartbeat(ctx(t), first, first)
		require.ErrorIs(t, err, changefeed.ErrConflict)
		now, err := s.Read(ctx(t))
		require.NoError(t, err)
		require.Equal(t, second, now)
		beat(t, s, second)
	})
}

// TestNewestRead: a server that lags behind answers from what is old. Read has it catch up.
func TestNewestRead(t *testing.T) {
	e := zktest.Cluster(t, 3)
	path := place()
	writer, r := created(t, connect(t, e.Leader().Addr()), path)
	lagging := e.Server(0)
	if lagging == e.Leader() {
		lagging = e.Server(1)
	}
	reader := newStore(t, connect(t, lagging.Addr()), path)
	now, err := reader.Read(ctx(t))
	require.NoError(t, err)
	require.Equal(t, r, now)
	lagging.Lag()
	r = beat(t, writer, r)
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err = reader.Read(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	lagging.Heal()
	now, err = reader.Read(ctx(t))
	require.NoError(t, err)
	require.Equal(t, r, now)
}

// TestLeaderCutOff: what is sent to a leader of servers that is cut off is not acknowledged,
// and others go on meanwhile.
func TestLeaderCutOff(t *testing.T) {
	t.Parallel()
	e := start(t, 3)
	path := place()
	_, r := created(t, connect(t, e.Addrs()...), path)
	leader, err := e.Leader()
	require.NoError(t, err)
	cut := newStore(t, connect(t, e.Addr(leader)), path)
	_, err = cut.Read(ctx(t)) // is connected
	require.NoError(t, err)
	require.NoError(t, e.CutOff(leader))
	defer func() { require.NoError(t, e.Heal(leader)) }()
	late := r
	late.Seq, late.Leader = late.Seq+1, "late"
	short, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err = cut.Heartbeat(short, r, late)
	require.Error(t, err)

	other := newStore(t, connect(t, e.Addr((leader+1)%3)), path)
	next := r
	next.Seq, next.Leader = next.Seq+1, "next"
	for patience := ctx(t); ; {
		written, err := other.Heartbeat(patience, r, next)
		if err == nil {
			require.Equal(t, "next", written.Leader)
			break
		}
		if errors.Is(err, changefeed.ErrConflict) { // of a try whose reply was lost
			now, err := other.Read(ctx(t))
			require.NoError(t, err)
			require.Equal(t, "next", now.Leader, "a write that a minority has taken was carried out")
			break
		}
		require.NoError(t, patience.Err())
	}
}
