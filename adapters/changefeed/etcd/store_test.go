package etcd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
	"github.com/go-leaderelection/leaderelection/internal/testenv/etcdserver"
)

// TestOneServer runs the tests that need a single real server. Some of them kill the server and start
// it again.
func TestOneServer(t *testing.T) {
	c := etcdserver.Start(t, etcdserver.Config{})
	t.Run("StartChangesNothing", func(t *testing.T) { testStartChangesNothing(t, c) })
	t.Run("Contract", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) *storetest.Backend { return newBackend(t, c) })
	})
	t.Run("OtherData", func(t *testing.T) { testOtherData(t, c) })
	t.Run("ClientClosed", func(t *testing.T) { testClientClosed(t, c) })
	t.Run("Heartbeat", func(t *testing.T) { testHeartbeat(t, c) })
	t.Run("HalfDeleted", func(t *testing.T) { testHalfDeleted(t, c) })
	t.Run("Watch", func(t *testing.T) { testWatch(t, c) })
}

// TestElection fails if elections on a real server do not satisfy their contract.
func TestElection(t *testing.T) {
	t.Parallel() // No test that runs in parallel counts goroutines.
	c := etcdserver.Start(t, etcdserver.Config{})
	storetest.RunElection(t, func(t testing.TB) *storetest.Backend { return newBackend(t, c) })
}

// TestPartitions fails if a leader that is cut off from the server still acts when the next leader
// starts.
func TestPartitions(t *testing.T) {
	t.Parallel()
	c, key := etcdserver.Start(t, etcdserver.Config{}), newKey()
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := dbserver.StartProxy(t, c.Addr(0))
		return storetest.Client{
			Store: newStore(t, connect(t, []string{network.Addr()}), key),
			Cut:   network.Cut,
			Heal:  func() { network.Drop(); network.Heal() },
		}
	}, nil)
}

func newBackend(t testing.TB, c *etcdserver.Cluster) *storetest.Backend {
	key, operator := newKey(), connect(t, c.Endpoints())
	return &storetest.Backend{
		New: func(t testing.TB) changefeed.Store { return newStore(t, connect(t, c.Endpoints()), key) },
		Lose: func(t testing.TB) {
			_, err := operator.Delete(fixture.Context(t), key, clientv3.WithPrefix())
			require.NoError(t, err)
		},
		Restart:  func(testing.TB) { c.Kill(0); c.Restart(0) },
		Patience: 30 * time.Second,
	}
}

// TestNew_InvalidArguments fails if New accepts an argument that no request can use.
func TestNew_InvalidArguments(t *testing.T) {
	_, err := New(nil, "a")
	require.ErrorIs(t, err, leaderelection.ErrNilConn)
	for _, key := range []string{"", "/", "a/"} {
		_, err = New(connect(t, []string{"127.0.0.1:1"}), key)
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption, key)
	}
}

// testStartChangesNothing fails if Start writes, with or without an existing record.
func testStartChangesNothing(t *testing.T, c *etcdserver.Cluster) {
	client := connect(t, c.Endpoints())
	revision := func() int64 {
		response, err := client.Get(fixture.Context(t), "x")
		require.NoError(t, err)
		return response.Header.Revision
	}
	s, before := newStore(t, client, newKey()), revision()
	require.NoError(t, s.Start(fixture.Context(t)))
	require.Equal(t, before, revision())
	require.NoError(t, s.Create(fixture.Context(t), fixture.Blank()))
	before = revision()
	require.NoError(t, s.Start(fixture.Context(t)))
	require.Equal(t, before, revision())
}

// testOtherData fails if a key with other data is accepted or changed, or a feed continues after the
// record was replaced by other data.
func testOtherData(t *testing.T, c *etcdserver.Cluster) {
	client := connect(t, c.Endpoints())
	key := newKey()
	for _, data := range []string{"", "other data", `{"leader":"me"}`} {
		_, err := client.Put(fixture.Context(t), key, data)
		require.NoError(t, err)
		s := newStore(t, client, key)
		require.ErrorIs(t, s.Start(fixture.Context(t)), changefeed.ErrUnsuitable)
		require.ErrorIs(t, s.Create(fixture.Context(t), fixture.Blank()), changefeed.ErrUnsuitable)
		require.ErrorIs(t, fixture.AwaitError(t, fixture.Subscribe(t, s)), changefeed.ErrUnsuitable)
		response, err := client.Get(fixture.Context(t), key)
		require.NoError(t, err)
		require.Equal(t, data, string(response.Kvs[0].Value))
	}
	key = newKey()
	s, r := createRecord(t, client, key)
	f := fixture.SubscribeTo(t, s, r)
	_, err := client.Put(fixture.Context(t), key, "other data")
	require.NoError(t, err)
	require.ErrorIs(t, fixture.AwaitError(t, f), changefeed.ErrUnsuitable)
}

// testClientClosed fails if a method does not report that the client was closed, or Heartbeat reports
// that nothing was written although that is unknown.
func testClientClosed(t *testing.T, c *etcdserver.Cluster) {
	client := connect(t, c.Endpoints())
	s, r := createRecord(t, client, newKey())
	f := fixture.SubscribeTo(t, s, r)
	require.NoError(t, client.Close())
	for method, err := range map[string]error{"Next": fixture.AwaitError(t, f), "Start": s.Start(fixture.Context(t))} {
		require.ErrorIs(t, err, changefeed.ErrUnsuitable, method)
		require.ErrorIs(t, err, leaderelection.ErrConnClosed, method)
	}
	_, err := s.Heartbeat(fixture.Context(t), r, r)
	require.ErrorIs(t, err, leaderelection.ErrConnClosed)
	require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
}

// TestPermissions fails if Start accepts a user that cannot read and write both keys, or rejects a
// user that can.
func TestPermissions(t *testing.T) {
	t.Parallel()
	c := etcdserver.Start(t, etcdserver.Config{})
	root := connect(t, c.Endpoints())
	none := func(string) error { return nil }
	permission := func(kind clientv3.PermissionType) func(role string) error {
		return func(role string) error {
			_, err := root.RoleGrantPermission(fixture.Context(t), role, "jobs", "jobs0", kind)
			return err
		}
	}
	users := map[string]func(role string) error{
		"root": none, "otherUser": none,
		"candidate": permission(clientv3.PermissionType(clientv3.PermReadWrite)),
		"reader":    permission(clientv3.PermissionType(clientv3.PermRead)),
	}
	for name, grant := range users {
		_, err := root.UserAdd(fixture.Context(t), name, "secret")
		require.NoError(t, err)
		_, err = root.RoleAdd(fixture.Context(t), name)
		require.NoError(t, err)
		require.NoError(t, grant(name))
		_, err = root.UserGrantRole(fixture.Context(t), name, name)
		require.NoError(t, err)
	}
	_, err := root.AuthEnable(fixture.Context(t))
	require.NoError(t, err)
	storeOf := func(user string) *Store {
		return newStore(t, connect(t, c.Endpoints(), func(cfg *clientv3.Config) {
			if user != "" {
				cfg.Username, cfg.Password = user, "secret"
			}
		}), "jobs")
	}
	candidate := storeOf("candidate")
	require.NoError(t, candidate.Start(fixture.Context(t)))
	for _, user := range []string{"reader", "otherUser", ""} {
		s := storeOf(user)
		err := s.Start(fixture.Context(t))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable, user)
		require.ErrorIs(t, err, leaderelection.ErrPermission, user)
		require.ErrorIs(t, s.Create(fixture.Context(t), fixture.Blank()), changefeed.ErrUnsuitable)
	}
	require.NoError(t, candidate.Create(fixture.Context(t), fixture.Blank()))
	r, err := candidate.Read(fixture.Context(t))
	require.NoError(t, err)
	require.ErrorIs(t, storeOf("reader").Start(fixture.Context(t)), leaderelection.ErrPermission)
	_, err = storeOf("reader").Heartbeat(fixture.Context(t), r, r)
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	f := fixture.SubscribeTo(t, candidate, r)
	fixture.AwaitRecord(t, f, fixture.Heartbeat(t, candidate, r))
}

// testHeartbeat fails if a heartbeat replaces a record of another cluster with the same revision, or
// an invalid version, or a heartbeat with another epoch does not replace the epoch key.
func testHeartbeat(t *testing.T, c *etcdserver.Cluster) {
	s, r := createRecord(t, connect(t, c.Endpoints()), newKey())
	old := r
	old.Epoch = "of another cluster, whose revisions have started at 1 as well"
	_, err := s.Heartbeat(fixture.Context(t), old, old)
	require.ErrorIs(t, err, changefeed.ErrConflict)
	now, err := s.Read(fixture.Context(t))
	require.NoError(t, err)
	require.Equal(t, r, now)
	next := r
	next.Epoch, next.Seq = "two", 1
	second, err := s.Heartbeat(fixture.Context(t), r, next)
	require.NoError(t, err, "a heartbeat with another epoch")
	fixture.Heartbeat(t, s, second)
	for _, v := range []string{"", "x", "-1", "0"} {
		invalid := second
		invalid.Version = v
		_, err := s.Heartbeat(fixture.Context(t), invalid, second)
		require.ErrorIs(t, err, changefeed.ErrConflict, v)
	}
}

// testHalfDeleted fails if a record whose deletion was interrupted between the two keys is readable, or
// cannot be replaced by a new record.
func testHalfDeleted(t *testing.T, c *etcdserver.Cluster) {
	client := connect(t, c.Endpoints())
	s, r := createRecord(t, client, newKey())
	_, err := client.Delete(fixture.Context(t), s.epochKey())
	require.NoError(t, err)
	_, err = s.Read(fixture.Context(t))
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	_, err = s.Heartbeat(fixture.Context(t), r, r)
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	require.NoError(t, s.Start(fixture.Context(t)))
	two := fixture.Blank()
	two.Epoch = "two"
	require.NoError(t, s.Create(fixture.Context(t), two))
	require.NoError(t, s.Create(fixture.Context(t), fixture.Blank()))
	now, err := s.Read(fixture.Context(t))
	require.NoError(t, err)
	require.Equal(t, "two", now.Epoch)
	_, err = client.Delete(fixture.Context(t), s.key)
	require.NoError(t, err)
	require.NoError(t, s.Create(fixture.Context(t), fixture.Blank()))
	now, err = s.Read(fixture.Context(t))
	require.NoError(t, err)
	fixture.Heartbeat(t, s, now)
}

// TestDependencies fails if a program that imports this store links the driver of another store.
func TestDependencies(t *testing.T) { fixture.RequireOneDriver(t, "go.etcd.io/etcd/client/v3") }
