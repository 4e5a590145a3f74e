package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/etcdserver"
)

// TestOneServer is what one real server is enough for. It is killed and started again.
func TestOneServer(t *testing.T) {
	c := etcdserver.Start(t, etcdserver.Config{})
	t.Run("StartChangesNothing", func(t *testing.T) { startChangesNothing(t, c) })
	t.Run("Suite", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) *storetest.Backend { return backend(t, c) })
	})
	t.Run("Unsuitable", func(t *testing.T) { unsuitable(t, c) })
	t.Run("Traps", func(t *testing.T) { traps(t, c) })
}

// TestElection holds elections on a real server.
func TestElection(t *testing.T) {
	t.Parallel() // with others that count no goroutines
	c := etcdserver.Start(t, etcdserver.Config{})
	storetest.RunElection(t, func(t testing.TB) *storetest.Backend { return backend(t, c) })
}

func backend(t testing.TB, c *etcdserver.Cluster) *storetest.Backend {
	key, operator := place(), connect(t, c.Endpoints())
	return &storetest.Backend{
		New: func(t testing.TB) changefeed.Store { return newStore(t, connect(t, c.Endpoints()), key) },
		Lose: func(t testing.TB) {
			_, err := operator.Delete(ctx(t), key, clientv3.WithPrefix())
			require.NoError(t, err)
		},
		Restart:  func(testing.TB) { c.Kill(0); c.Restart(0) },
		Patience: 30 * time.Second,
	}
}

func TestRefusesBadArguments(t *testing.T) {
	_, err := New(nil, "a")
	require.ErrorIs(t, err, leaderelection.ErrNilConn)
	for _, key := range []string{"", "/", "a/"} {
		_, err = New(connect(t, []string{"127.0.0.1:1"}), key)
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption, key)
	}
}

// startChangesNothing: neither where there is nothing nor where there is a record.
func startChangesNothing(t *testing.T, c *etcdserver.Cluster) {
	client := connect(t, c.Endpoints())
	revision := func() int64 {
		answer, err := client.Get(ctx(t), "x")
		require.NoError(t, err)
		return answer.Header.Revision
	}
	s, before := newStore(t, client, place()), revision()
	require.NoError(t, s.Start(ctx(t)))
	require.Equal(t, before, revision())
	require.NoError(t, s.Create(ctx(t), blank))
	before = revision()
	require.NoError(t, s.Start(ctx(t)))
	require.Equal(t, before, revision())
}

// unsuitable: what can never work is told at the start, and nothing is changed.
func unsuitable(t *testing.T, c *etcdserver.Cluster) {
	client := connect(t, c.Endpoints())
	t.Run("OtherData", func(t *testing.T) {
		key := place()
		for _, data := range []string{"", "my own", `{"leader":"me"}`} {
			_, err := client.Put(ctx(t), key, data)
			require.NoError(t, err)
			s := newStore(t, client, key)
			require.ErrorIs(t, s.Start(ctx(t)), changefeed.ErrUnsuitable)
			require.ErrorIs(t, s.Create(ctx(t), blank), changefeed.ErrUnsuitable)
			require.ErrorIs(t, ends(t, subscribe(t, s)), changefeed.ErrUnsuitable)
			got, err := client.Get(ctx(t), key)
			require.NoError(t, err)
			require.Equal(t, data, string(got.Kvs[0].Value))
		}
		key = place()
		s, r := created(t, client, key)
		f := subscribe(t, s)
		tells(t, f, r)
		_, err := client.Put(ctx(t), key, "my own")
		require.NoError(t, err)
		require.ErrorIs(t, ends(t, f), changefeed.ErrUnsuitable)
	})
	t.Run("Closed", func(t *testing.T) {
		client := connect(t, c.Endpoints())
		s, r := created(t, client, place())
		f := subscribe(t, s)
		tells(t, f, r)
		require.NoError(t, client.Close())
		for what, err := range map[string]error{"Next": ends(t, f), "Start": s.Start(ctx(t))} {
			require.ErrorIs(t, err, changefeed.ErrUnsuitable, what)
			require.ErrorIs(t, err, leaderelection.ErrConnClosed, what)
		}
		_, err := s.Heartbeat(ctx(t), r, r)
		require.ErrorIs(t, err, leaderelection.ErrConnClosed)
		require.NotErrorIs(t, err, changefeed.ErrUnsuitable, "it would say that nothing was written")
	})
}

// TestPermissions: what a user may not do is told at the start.
func TestPermissions(t *testing.T) {
	t.Parallel()
	c := etcdserver.Start(t, etcdserver.Config{})
	root := connect(t, c.Endpoints())
	users := map[string]func(role string) error{
		"root": func(string) error { return nil },
		"candidate": func(role string) error {
			_, err := root.RoleGrantPermission(ctx(t), role, "jobs", "jobs0", clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		"reader": func(role string) error {
			_, err := root.RoleGrantPermission(ctx(t), role, "jobs", "jobs0", clientv3.PermissionType(clientv3.PermRead))
			return err
		},
		"stranger": func(string) error { return nil },
	}
	for name, grant := range users {
		_, err := root.UserAdd(ctx(t), name, "secret")
		require.NoError(t, err)
		_, err = root.RoleAdd(ctx(t), name)
		require.NoError(t, err)
		require.NoError(t, grant(name))
		_, err = root.UserGrantRole(ctx(t), name, name)
		require.NoError(t, err)
	}
	_, err := root.AuthEnable(ctx(t))
	require.NoError(t, err)
	as := func(name string) *Store {
		return newStore(t, connect(t, c.Endpoints(), func(cfg *clientv3.Config) {
			if name != "" {
				cfg.Username, cfg.Password = name, "secret"
			}
		}), "jobs")
	}
	candidate := as("candidate")
	require.NoError(t, candidate.Start(ctx(t)))
	for _, name := range []string{"reader", "stranger", ""} {
		s := as(name)
		err := s.Start(ctx(t))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable, name)
		require.ErrorIs(t, err, leaderelection.ErrPermission, name)
		require.ErrorIs(t, s.Create(ctx(t), blank), changefeed.ErrUnsuitable)
	}
	require.NoError(t, candidate.Create(ctx(t), blank))
	r, err := candidate.Read(ctx(t))
	require.NoError(t, err)
	require.ErrorIs(t, as("reader").Start(ctx(t)), leaderelection.ErrPermission)
	_, err = as("reader").Heartbeat(ctx(t), r, r)
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	f := subscribe(t, candidate)
	tells(t, f, r)
	tells(t, f, beat(t, candidate, r))
}

// traps is what goes wrong with records in etcd if nobody sees to it.
func traps(t *testing.T, c *etcdserver.Cluster) {
	client := connect(t, c.Endpoints())

	// What a watch has missed while it was away may have been compacted: it reads again.
	t.Run("Compacted", func(t *testing.T) {
		p, key := proxy(t, c.Addr(0)), place()
		s, r := created(t, client, key)
		f := subscribe(t, newStore(t, connect(t, []string{p.Addr()}), key))
		tells(t, f, r)
		first := beat(t, s, r)
		tells(t, f, first) // so the watch is open
		p.Cut()
		p.Drop()
		last := beat(t, s, beat(t, s, first))
		revision, err := parse(last.Version)
		require.NoError(t, err)
		_, err = client.Compact(ctx(t), revision)
		require.NoError(t, err)
		p.Heal()
		tells(t, f, last)
		tells(t, f, beat(t, s, last))
	})

	// A watch goes on by itself after the server was away, without a gap.
	t.Run("ServerAway", func(t *testing.T) {
		s, r := created(t, client, place())
		f := subscribe(t, s)
		tells(t, f, r)
		c.Kill(0)
		c.Restart(0)
		r = beat(t, s, r)
		for {
			e, err := f.Next(ctx(t))
			if err != nil { // when it took longer than the feed waits
				f = subscribe(t, s)
				continue
			}
			if e.Record.Version == r.Version {
				break
			}
		}
	})

	// A connection over which nothing comes any more is silent.
	t.Run("DeadConnection", func(t *testing.T) {
		p, key := proxy(t, c.Addr(0)), place()
		_, r := created(t, client, key)
		s := newStore(t, connect(t, []string{p.Addr()}), key)
		f := subscribe(t, s)
		tells(t, f, r)
		p.Cut()
		begin := time.Now()
		require.ErrorContains(t, ends(t, f), "after the quiet time")
		require.Less(t, time.Since(begin), 10*time.Second)
		begin = time.Now()
		require.NoError(t, f.Close())
		require.NoError(t, s.Close())
		require.Less(t, time.Since(begin), 10*time.Second) // it takes two seconds each, and a busy machine more
	})

	// A cluster that was set up anew counts its revisions anew: then the epoch is another.
	t.Run("RevisionsBeginAnew", func(t *testing.T) {
		s, r := created(t, client, place())
		old := r
		old.Epoch = "of another cluster, at the same revision"
		_, err := s.Heartbeat(ctx(t), old, old)
		require.ErrorIs(t, err, changefeed.ErrConflict)
		now, err := s.Read(ctx(t))
		require.NoError(t, err)
		require.Equal(t, r, now)
		next := r
		next.Epoch, next.Seq = "two", 1
		second, err := s.Heartbeat(ctx(t), r, next)
		require.NoError(t, err, "a heartbeat that begins an epoch")
		beat(t, s, second)
		for _, v := range []string{"", "x", "-1", "0"} {
			bad := second
			bad.Version = v
			_, err := s.Heartbeat(ctx(t), bad, second)
			require.ErrorIs(t, err, changefeed.ErrConflict, v)
		}
	})

	// Two keys may be deleted one after the other.
	t.Run("HalfDeleted", func(t *testing.T) {
		s, r := created(t, client, place())
		_, err := client.Delete(ctx(t), s.mark())
		require.NoError(t, err)
		_, err = s.Read(ctx(t))
		require.ErrorIs(t, err, changefeed.ErrNoRecord)
		_, err = s.Heartbeat(ctx(t), r, r)
		require.ErrorIs(t, err, changefeed.ErrNoRecord)
		require.NoError(t, s.Start(ctx(t)))
		two := blank
		two.Epoch = "two"
		require.NoError(t, s.Create(ctx(t), two))
		require.NoError(t, s.Create(ctx(t), blank))
		now, err := s.Read(ctx(t))
		require.NoError(t, err)
		require.Equal(t, "two", now.Epoch)
		_, err = client.Delete(ctx(t), s.key)
		require.NoError(t, err)
		require.NoError(t, s.Create(ctx(t), blank))
		now, err = s.Read(ctx(t))
		require.NoError(t, err)
		beat(t, s, now)
	})
}

// TestMinority: a server that has lost the others serves no watch, which says so, and takes
// no heartbeat.
func TestMinority(t *testing.T) {
	t.Parallel()
	c := etcdserver.Start(t, etcdserver.Config{Members: 3})
	s, r := created(t, connect(t, []string{c.Addr(0)}), place())
	f := subscribe(t, s)
	tells(t, f, r)
	r = beat(t, s, r)
	tells(t, f, r) // so the watch is open
	c.Kill(1)
	c.Kill(2)
	require.ErrorIs(t, ends(t, f), rpctypes.ErrNoLeader)
	short, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := s.Heartbeat(short, r, r)
	require.Error(t, err)
	for _, known := range []error{changefeed.ErrConflict, changefeed.ErrNoRecord, changefeed.ErrUnsuitable} {
		require.NotErrorIs(t, err, known, "it says more than can be known")
	}
}

// TestPartitions fails if a leader that is cut off from the server still acts when the next leader
// starts.
func TestPartitions(t *testing.T) {
	t.Parallel()
	c, key := etcdserver.Start(t, etcdserver.Config{}), place()
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := proxy(t, c.Addr(0))
		return storetest.Client{
			Store: newStore(t, connect(t, []string{network.Addr()}), key),
			Cut:   network.Cut,
			Heal:  func() { network.Drop(); network.Heal() },
		}
	}, nil)
}
