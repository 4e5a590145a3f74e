package zookeeper

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// testStartUnsuitable fails if Start accepts a znode that can never be used, or changes it.
func testStartUnsuitable(t *testing.T, e *ensemble.Ensemble) {
	owner, otherUser := connect(t, e.Addrs()...), connect(t, e.Addrs()...)
	require.NoError(t, owner.AddAuth("digest", []byte("owner:secret")))
	mine := zk.DigestACL(zk.PermAll, "owner", "secret")
	readable := append(zk.WorldACL(zk.PermRead), mine...)

	requireUnsuitable := func(t *testing.T, s *Store, reasons ...error) {
		t.Helper()
		err := s.Start(fixture.Context(t))
		for _, want := range append(reasons, changefeed.ErrUnsuitable) {
			require.ErrorIs(t, err, want)
		}
		require.ErrorContains(t, err, "/")
	}
	t.Run("OtherData", func(t *testing.T) {
		path := newPath()
		require.NoError(t, newStore(t, owner, path+"/below").Create(fixture.Context(t), blank)) // creates path without data
		for _, data := range []string{"", "other data", `{"leader":"me"}`} {
			_, err := owner.Set(path, []byte(data), -1)
			require.NoError(t, err)
			s := newStore(t, owner, path)
			requireUnsuitable(t, s)
			require.ErrorIs(t, s.Create(fixture.Context(t), blank), changefeed.ErrUnsuitable)
			_, err = s.Read(fixture.Context(t))
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			_, err = fixture.Subscribe(t, s).Next(fixture.Context(t))
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			got, _, err := owner.Get(path)
			require.NoError(t, err)
			require.Equal(t, data, string(got))
		}
	})
	t.Run("NotReadable", func(t *testing.T) {
		path := newPath()
		require.NoError(t, newStore(t, owner, path, WithACL(mine)).Create(fixture.Context(t), blank))
		requireUnsuitable(t, newStore(t, otherUser, path), leaderelection.ErrPermission)
	})
	t.Run("NotWritable", func(t *testing.T) {
		path := newPath()
		s := newStore(t, owner, path, WithACL(readable))
		require.NoError(t, s.Create(fixture.Context(t), blank))
		r, err := s.Read(fixture.Context(t))
		require.NoError(t, err)
		require.NoError(t, s.Start(fixture.Context(t)), "the owner may write")
		other := newStore(t, otherUser, path)
		requireUnsuitable(t, other, leaderelection.ErrPermission)
		_, err = other.Heartbeat(fixture.Context(t), r, r)
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		require.ErrorIs(t, err, leaderelection.ErrPermission)
		now, err := s.Read(fixture.Context(t))
		require.NoError(t, err)
		require.Equal(t, r, now)
	})
	t.Run("NotCreatable", func(t *testing.T) {
		_, err := owner.Create("/owned", nil, 0, readable)
		require.NoError(t, err)
		for _, path := range []string{"/owned/record", "/owned/a/b/record"} {
			s := newStore(t, otherUser, path)
			requireUnsuitable(t, s, leaderelection.ErrPermission)
			require.ErrorIs(t, s.Create(fixture.Context(t), blank), changefeed.ErrUnsuitable)
			require.NoError(t, newStore(t, owner, path).Start(fixture.Context(t)), "the owner may create")
		}
		s := newStore(t, otherUser, "/a", WithACL(mine)) // otherUser could not use this znode
		requireUnsuitable(t, s, leaderelection.ErrPermission)
		requireTree(t, owner, "/owned", "")
		requireTree(t, owner, "/a")
	})
	t.Run("NoParent", func(t *testing.T) {
		path := newPath()
		s := newStore(t, owner, path, WithExistingParent())
		requireUnsuitable(t, s)
		require.ErrorIs(t, s.Create(fixture.Context(t), blank), changefeed.ErrNoRecord)
		requireTree(t, owner, path[:len(path)-len("/record")])
		require.NoError(t, newStore(t, owner, path).Create(fixture.Context(t), blank))
		require.NoError(t, s.Start(fixture.Context(t)))
	})
	t.Run("EphemeralParent", func(t *testing.T) {
		_, err := owner.Create("/ephemeral", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		requireUnsuitable(t, newStore(t, owner, "/ephemeral/record"))
	})
}

// testStartChangesNothing fails if Start creates znodes or changes an existing record.
func testStartChangesNothing(t *testing.T, e *ensemble.Ensemble) {
	conn := connect(t, e.Addrs()...)
	path := newPath()
	require.NoError(t, newStore(t, conn, path).Start(fixture.Context(t)))
	requireTree(t, conn, "/elections")
	s, r := createRecord(t, conn, path)
	require.NoError(t, s.Start(fixture.Context(t)))
	now, err := s.Read(context.Background())
	require.NoError(t, err)
	require.Equal(t, r, now)
	requireTree(t, conn, path, "", "/epoch-one%20%2F%201")
}
