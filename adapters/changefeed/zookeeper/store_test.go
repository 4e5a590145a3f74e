package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// TestOneServer is what one real server is enough for. It is killed and started again.
func TestOneServer(t *testing.T) {
	e := start(t, 1)
	t.Run("StartChangesNothing", func(t *testing.T) { startChangesNothing(t, e) })
	t.Run("Suite", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) *storetest.Backend { return backend(t, e) })
	})
	t.Run("Unsuitable", func(t *testing.T) { unsuitable(t, e) })
	t.Run("Traps", func(t *testing.T) { traps(t, e) })
}

// TestElection holds elections on a real server.
func TestElection(t *testing.T) {
	t.Parallel() // with others that count no goroutines
	e := start(t, 1)
	storetest.RunElection(t, func(t testing.TB) *storetest.Backend { return backend(t, e) })
}

func backend(t testing.TB, e *ensemble.Ensemble) *storetest.Backend {
	path, operator := place(), connect(t, e.Addrs()...)
	return &storetest.Backend{
		New:  func(t testing.TB) changefeed.Store { return newStore(t, connect(t, e.Addrs()...), path) },
		Lose: func(t testing.TB) { remove(t, operator, path) },
		Restart: func(t testing.TB) {
			require.NoError(t, e.Restart(0))
			require.NoError(t, e.WaitReady(ctx(t), 0))
		},
		Patience: 30 * time.Second,
	}
}

func TestRefusesBadArguments(t *testing.T) {
	conn, _, err := zk.Connect([]string{"127.0.0.1:1"}, time.Second, zk.WithLogger(quiet{}))
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

// unsuitable: what can never work is told at the start, and nothing is changed.
func unsuitable(t *testing.T, e *ensemble.Ensemble) {
	owner, stranger := connect(t, e.Addrs()...), connect(t, e.Addrs()...)
	require.NoError(t, owner.AddAuth("digest", []byte("owner:secret")))
	mine := zk.DigestACL(zk.PermAll, "owner", "secret")
	readable := append(zk.WorldACL(zk.PermRead), mine...)

	unsuitable := func(t *testing.T, s *Store, as ...error) {
		t.Helper()
		err := s.Start(ctx(t))
		for _, want := range append(as, changefeed.ErrUnsuitable) {
			require.ErrorIs(t, err, want)
		}
		require.ErrorContains(t, err, "/")
	}
	t.Run("OtherData", func(t *testing.T) {
		path := place()
		require.NoError(t, newStore(t, owner, path+"/below").Create(ctx(t), blank)) // makes path, empty
		for _, data := range []string{"", "my own", `{"leader":"me"}`} {
			_, err := owner.Set(path, []byte(data), -1)
			require.NoError(t, err)
			s := newStore(t, owner, path)
			unsuitable(t, s)
			require.ErrorIs(t, s.Create(ctx(t), blank), changefeed.ErrUnsuitable)
			_, err = s.Read(ctx(t))
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			f, err := s.Subscribe(ctx(t))
			require.NoError(t, err)
			_, err = f.Next(ctx(t))
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			got, _, err := owner.Get(path)
			require.NoError(t, err)
			require.Equal(t, data, string(got))
		}
	})
	t.Run("NotReadable", func(t *testing.T) {
		path := place()
		require.NoError(t, newStore(t, owner, path, WithACL(mine)).Create(ctx(t), blank))
		unsuitable(t, newStore(t, stranger, path), leaderelection.ErrPermission)
	})
	t.Run("NotWritable", func(t *testing.T) {
		path := place()
		s := newStore(t, owner, path, WithACL(readable))
		require.NoError(t, s.Create(ctx(t), blank))
		r, err := s.Read(ctx(t))
		require.NoError(t, err)
		require.NoError(t, s.Start(ctx(t)), "the owner may write")
		other := newStore(t, stranger, path)
		unsuitable(t, other, leaderelection.ErrPermission)
		_, err = other.Heartbeat(ctx(t), r, r)
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		require.ErrorIs(t, err, leaderelection.ErrPermission)
		now, err := s.Read(ctx(t))
		require.NoError(t, err)
		require.Equal(t, r, now)
	})
	t.Run("NotToBeMade", func(t *testing.T) {
		_, err := owner.Create("/owned", nil, 0, readable)
		require.NoError(t, err)
		for _, path := range []string{"/owned/record", "/owned/a/b/record"} {
			s := newStore(t, stranger, path)
			unsuitable(t, s, leaderelection.ErrPermission)
			require.ErrorIs(t, s.Create(ctx(t), blank), changefeed.ErrUnsuitable)
			require.NoError(t, newStore(t, owner, path).Start(ctx(t)), "the owner may create")
		}
		s := newStore(t, stranger, "/a", WithACL(mine)) // which the stranger could not use
		unsuitable(t, s, leaderelection.ErrPermission)
		requireTree(t, owner, "/owned", "")
		requireTree(t, owner, "/a")
	})
	t.Run("NoParent", func(t *testing.T) {
		path := place()
		s := newStore(t, owner, path, WithExistingParent())
		unsuitable(t, s)
		require.ErrorIs(t, s.Create(ctx(t), blank), changefeed.ErrNoRecord)
		requireTree(t, owner, path[:len(path)-len("/record")])
		require.NoError(t, newStore(t, owner, path).Create(ctx(t), blank))
		require.NoError(t, s.Start(ctx(t)))
	})
	t.Run("EphemeralParent", func(t *testing.T) {
		_, err := owner.Create("/ephemeral", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		unsuitable(t, newStore(t, owner, "/ephemeral/record"))
	})
	t.Run("Closed", func(t *testing.T) {
		conn, path := connect(t, e.Addrs()...), place()
		s, r := created(t, conn, path)
		f, err := s.Subscribe(ctx(t))
		require.NoError(t, err)
		tells(t, f, r)
		conn.Close()
		_, err = f.Next(ctx(t))
		require.ErrorIs(t, err, leaderelection.ErrConnClosed)
		unsuitable(t, s, leaderelection.ErrConnClosed)
		_, err = s.Heartbeat(ctx(t), r, r)
		require.ErrorIs(t, err, leaderelection.ErrConnClosed)
		require.NotErrorIs(t, err, changefeed.ErrUnsuitable, "it would say that nothing was written")
	})
}

// startChangesNothing: neither where there is nothing nor where there is a record.
func startChangesNothing(t *testing.T, e *ensemble.Ensemble) {
	conn := connect(t, e.Addrs()...)
	path := place()
	require.NoError(t, newStore(t, conn, path).Start(ctx(t)))
	requireTree(t, conn, "/elections")
	s, r := created(t, conn, path)
	require.NoError(t, s.Start(ctx(t)))
	now, err := s.Read(context.Background())
	require.NoError(t, err)
	require.Equal(t, r, now)
	requireTree(t, conn, path, "", "/epoch-one%20%2F%201")
}

// TestPartitions fails if a leader that is cut off from the server still acts when the next leader
// starts.
func TestPartitions(t *testing.T) {
	t.Parallel()
	e, path := start(t, 1), place()
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := proxy(t, e.Addr(0))
		return storetest.Client{
			Store: newStore(t, connect(t, network.Addr()), path),
			Cut:   func() { network.Blackhole(zkproxy.Both) },
			Heal:  func() { network.DropConnections(); network.Unblackhole() },
		}
	}, nil)
}
