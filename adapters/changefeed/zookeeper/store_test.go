package zookeeper

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestOneServer runs the tests that need a single real server. Some of them kill the server and start
// it again.
func TestOneServer(t *testing.T) {
	e := startServers(t, 1)
	t.Run("StartChangesNothing", func(t *testing.T) { testStartChangesNothing(t, e) })
	t.Run("Contract", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) *storetest.Backend { return newBackend(t, e) })
	})
	t.Run("StartUnsuitable", func(t *testing.T) { testStartUnsuitable(t, e) })
	t.Run("RequestsObserveContext", func(t *testing.T) { testRequestsObserveContext(t, e) })
	t.Run("ConnectionClosed", func(t *testing.T) { testConnectionClosed(t, e) })
	t.Run("Heartbeat", func(t *testing.T) { testHeartbeat(t, e) })
	t.Run("HalfDeleted", func(t *testing.T) { testHalfDeleted(t, e) })
	t.Run("Watch", func(t *testing.T) { testWatch(t, e) })
}

// TestElection fails if elections on a real server do not satisfy their contract.
func TestElection(t *testing.T) {
	t.Parallel() // No test that runs in parallel counts goroutines.
	e := startServers(t, 1)
	storetest.RunElection(t, func(t testing.TB) *storetest.Backend { return newBackend(t, e) })
}

// TestPartitions fails if a leader that is cut off from the server still acts when the next leader
// starts.
func TestPartitions(t *testing.T) {
	t.Parallel()
	e, path := startServers(t, 1), newPath()
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := newProxy(t, e.Addr(0))
		return storetest.Client{
			Store: newStore(t, connect(t, network.Addr()), path),
			Cut:   func() { network.Blackhole(zkproxy.Both) },
			Heal:  func() { network.DropConnections(); network.Unblackhole() },
		}
	}, nil)
}

func newBackend(t testing.TB, e *ensemble.Ensemble) *storetest.Backend {
	path, operator := newPath(), connect(t, e.Addrs()...)
	return &storetest.Backend{
		New:  func(t testing.TB) changefeed.Store { return newStore(t, connect(t, e.Addrs()...), path) },
		Lose: func(t testing.TB) { deleteTree(t, operator, path) },
		Restart: func(t testing.TB) {
			require.NoError(t, e.Restart(0))
			require.NoError(t, e.WaitReady(fixture.Context(t), 0))
		},
		Patience: 30 * time.Second,
	}
}

// TestNew_InvalidArguments fails if New accepts an argument that no request can use.
func TestNew_InvalidArguments(t *testing.T) {
	conn, _, err := zk.Connect([]string{"127.0.0.1:1"}, time.Second, zk.WithLogger(discardLogger{}))
	require.NoError(t, err)
	defer conn.Close()
	_, err = New(nil, "/a")
	require.ErrorIs(t, err, leaderelection.ErrNilConn)
	for _, path := range []string{"", "/", "a", "/a/", "/a//b", "/a/../b"} {
		_, err = New(conn, path)
		require.ErrorIs(t, err, leaderelection.ErrInvalidPath, path)
	}
	for _, o := range []Option{nil, WithACL(nil)} {
		_, err = New(conn, "/a", o)
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
	}
}

// testRequestsObserveContext fails if a call blocks after its context is done or the store is
// closed. The client library's requests have no context, and block until the server answers.
func testRequestsObserveContext(t *testing.T, e *ensemble.Ensemble) {
	s, r := createRecord(t, connect(t, e.Addrs()...), newPath())
	f := fixture.SubscribeTo(t, s, r)
	require.NoError(t, e.Pause(0))
	defer func() { require.NoError(t, e.Resume(0)) }()
	for name, request := range map[string]func(context.Context) error{
		"Heartbeat": func(ctx context.Context) error { _, err := s.Heartbeat(ctx, r, r); return err },
		"Read":      func(ctx context.Context) error { _, err := s.Read(ctx); return err },
		"Create":    func(ctx context.Context) error { return s.Create(ctx, blank) },
		"Start":     s.Start,
		"Next":      func(ctx context.Context) error { _, err := f.Next(ctx); return err },
	} {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		err := request(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.Less(t, time.Since(begin), 10*time.Second, name)
	}
	ended := make(chan error, 1)
	go func() { _, err := s.Read(context.Background()); ended <- err }()
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-ended, changefeed.ErrClosed)
}

// testConnectionClosed fails if a method does not report that the connection was closed, or Heartbeat
// reports that nothing was written although that is unknown.
func testConnectionClosed(t *testing.T, e *ensemble.Ensemble) {
	conn := connect(t, e.Addrs()...)
	s, r := createRecord(t, conn, newPath())
	f := fixture.SubscribeTo(t, s, r)
	conn.Close()
	_, err := f.Next(fixture.Context(t))
	require.ErrorIs(t, err, leaderelection.ErrConnClosed)
	err = s.Start(fixture.Context(t))
	require.ErrorIs(t, err, leaderelection.ErrConnClosed)
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	_, err = s.Heartbeat(fixture.Context(t), r, r)
	require.ErrorIs(t, err, leaderelection.ErrConnClosed)
	require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
}

func testHeartbeat(t *testing.T, e *ensemble.Ensemble) {
	conn := connect(t, e.Addrs()...)

	// Fails if Heartbeat reports a definite result although the reply was lost.
	t.Run("LostReply", func(t *testing.T) {
		p := newProxy(t, e.Addr(0))
		s, r := createRecord(t, connect(t, p.Addr()), newPath())
		p.On(zkproxy.Rule{Op: zkproxy.OpMulti, Action: zkproxy.CutAfterApplied})
		next := r
		next.Seq, next.Leader = 2, "me"
		_, err := s.Heartbeat(fixture.Context(t), r, next)
		require.Error(t, err)
		for _, definite := range []error{changefeed.ErrConflict, changefeed.ErrNoRecord, changefeed.ErrUnsuitable} {
			require.NotErrorIs(t, err, definite)
		}
		now, err := s.Read(fixture.Context(t))
		require.NoError(t, err)
		require.Equal(t, "me", now.Leader)
		fixture.Heartbeat(t, s, now)
	})

	// Fails if a heartbeat to a deleted record replaces a later record: the versions of a znode
	// restart if it is created again.
	t.Run("VersionsRestart", func(t *testing.T) {
		path := newPath()
		s, r := createRecord(t, conn, path)
		deleteTree(t, conn, path)
		other := blank
		other.Epoch = "two"
		require.NoError(t, s.Create(fixture.Context(t), other))
		now, err := s.Read(fixture.Context(t))
		require.NoError(t, err)
		_, oldVersion, err := parseVersion(r.Version)
		require.NoError(t, err)
		_, newVersion, err := parseVersion(now.Version)
		require.NoError(t, err)
		require.Equal(t, oldVersion, newVersion, "the versions differ, so the write would fail without a check of the epoch")
		_, err = s.Heartbeat(fixture.Context(t), r, r)
		require.ErrorIs(t, err, changefeed.ErrConflict)
		after, err := s.Read(fixture.Context(t))
		require.NoError(t, err)
		require.Equal(t, now, after)
	})

	// Fails if the version of another store is mistaken for a version of this store.
	t.Run("InvalidVersion", func(t *testing.T) {
		s, r := createRecord(t, conn, newPath())
		for _, v := range []string{"", "1", "x.y", "99999999999999999999.1"} {
			invalid := r
			invalid.Version = v
			_, err := s.Heartbeat(fixture.Context(t), invalid, r)
			require.ErrorIs(t, err, changefeed.ErrConflict, v)
		}
	})

	// Fails if a heartbeat with another epoch does not replace the epoch znode.
	t.Run("OtherEpoch", func(t *testing.T) {
		path := newPath()
		s, first := createRecord(t, conn, path)
		next := first
		next.Epoch, next.Seq = "two", 1
		second, err := s.Heartbeat(fixture.Context(t), first, next)
		require.NoError(t, err)
		requireTree(t, conn, path, "", "/epoch-two")
		_, err = s.Heartbeat(fixture.Context(t), first, first)
		require.ErrorIs(t, err, changefeed.ErrConflict)
		now, err := s.Read(fixture.Context(t))
		require.NoError(t, err)
		require.Equal(t, second, now)
		fixture.Heartbeat(t, s, second)
	})
}

// testHalfDeleted fails if a record whose deletion was interrupted between the two znodes is
// readable, or cannot be replaced by a new record.
func testHalfDeleted(t *testing.T, e *ensemble.Ensemble) {
	conn, path := connect(t, e.Addrs()...), newPath()
	s, r := createRecord(t, conn, path)
	f := fixture.SubscribeTo(t, s, r)
	require.NoError(t, conn.Delete(s.epochNode(blank.Epoch), -1))
	_, err := s.Read(fixture.Context(t))
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	_, err = s.Heartbeat(fixture.Context(t), r, r)
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	require.NoError(t, s.Start(fixture.Context(t)))
	first, err := fixture.Subscribe(t, s).Next(fixture.Context(t))
	require.NoError(t, err)
	require.True(t, first.Missing)

	two := blank
	two.Epoch = "two"
	require.NoError(t, s.Create(fixture.Context(t), two))
	require.NoError(t, s.Create(fixture.Context(t), blank))
	now, err := s.Read(fixture.Context(t))
	require.NoError(t, err)
	require.Equal(t, "two", now.Epoch)
	fixture.AwaitRecord(t, f, now)
	requireTree(t, conn, path, "", "/epoch-two")
}

// TestRead_LaggingServer fails if Read returns an old record from a server that lags behind the
// others.
func TestRead_LaggingServer(t *testing.T) {
	e := zktest.Cluster(t, 3)
	path := newPath()
	writer, r := createRecord(t, connect(t, e.Leader().Addr()), path)
	lagging := e.Server(0)
	if lagging == e.Leader() {
		lagging = e.Server(1)
	}
	reader := newStore(t, connect(t, lagging.Addr()), path)
	now, err := reader.Read(fixture.Context(t))
	require.NoError(t, err)
	require.Equal(t, r, now)
	lagging.Lag()
	r = fixture.Heartbeat(t, writer, r)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err = reader.Read(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	lagging.Heal()
	now, err = reader.Read(fixture.Context(t))
	require.NoError(t, err)
	require.Equal(t, r, now)
}

// TestHeartbeat_IsolatedLeader fails if a heartbeat is acknowledged by a leader of the ensemble that
// is cut off from the other servers, or the other servers accept no heartbeats then.
func TestHeartbeat_IsolatedLeader(t *testing.T) {
	t.Parallel()
	e := startServers(t, 3)
	path := newPath()
	_, r := createRecord(t, connect(t, e.Addrs()...), path)
	leader, err := e.Leader()
	for ctx := fixture.Context(t); errors.Is(err, ensemble.ErrNoLeader) && ctx.Err() == nil; {
		leader, err = e.Leader()
	}
	require.NoError(t, err)
	isolated := newStore(t, connect(t, e.Addr(leader)), path)
	readRecord(t, isolated) // It is connected now.
	require.NoError(t, e.CutOff(leader))
	defer func() { require.NoError(t, e.Heal(leader)) }()
	late := r
	late.Seq, late.Leader = late.Seq+1, "late"
	short, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err = isolated.Heartbeat(short, r, late)
	require.Error(t, err)

	other := newStore(t, connect(t, e.Addr((leader+1)%3)), path)
	next := r
	next.Seq, next.Leader = next.Seq+1, "next"
	for ctx := fixture.Context(t); ; {
		written, err := other.Heartbeat(ctx, r, next)
		if err == nil {
			require.Equal(t, "next", written.Leader)
			break
		}
		if errors.Is(err, changefeed.ErrConflict) { // The reply of an earlier attempt was lost.
			require.Equal(t, "next", readRecord(t, other).Leader, "a write that only a minority received was applied")
			break
		}
		require.NoError(t, ctx.Err())
	}
}

// TestDependencies fails if a program that imports this store links the driver of another store.
func TestDependencies(t *testing.T) { fixture.RequireOneDriver(t, "github.com/go-zookeeper/zk") }
