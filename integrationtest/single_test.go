package integrationtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
)

// TestSingle_ExcludesHandWrittenLock checks that lock.Single and a hand-written lock at the same path exclude each
// other, and that a holder of lock.Single whose session expires notices the loss before the next client acquires the
// lock.
func TestSingle_ExcludesHandWrittenLock(t *testing.T) {
	t.Parallel()
	const owner = `{"hostname":"host-1","pid":7}`
	path := fmt.Sprintf("/single-%d/manager", time.Now().UnixNano())
	old, conn, short := connect(t), connect(t), connectShort(t)
	create := func() error {
		_, err := old.Create(path, []byte("old"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		return err
	}
	s, err := lock.NewSingle(conn.Conn, path, []byte(owner))
	require.NoError(t, err)
	h, err := s.Lock(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, create(), zk.ErrNodeExists)
	data, stat, err := old.Get(path)
	require.NoError(t, err)
	require.Equal(t, owner, string(data))
	require.Equal(t, stat.Czxid, h.Token())
	_, err = h.Multi(&zk.CreateRequest{Path: path + "-written", Acl: zk.WorldACL(zk.PermAll)})
	require.NoError(t, err)
	require.NoError(t, h.Release())

	require.NoError(t, create())
	_, err = s.TryLock(t.Context())
	require.ErrorIs(t, err, lock.ErrHeld)
	holder, err := s.Holder(t.Context())
	require.NoError(t, err)
	require.Equal(t, "old", holder.Name)
	next, err := lock.NewSingle(short.Conn, path, []byte(owner))
	require.NoError(t, err)
	locked := make(chan *lock.Hold, 1)
	go func() {
		h, err := next.Lock(context.Background())
		if err != nil {
			t.Errorf("lock: %v", err)
		}
		locked <- h
	}()
	require.NoError(t, old.Delete(path, 0))
	g := testenv.Receive(t, locked, "the lock")
	require.NotNil(t, g)
	require.Greater(t, g.Token(), h.Token())

	short.Network.Freeze()
	testenv.Eventually(t, func() bool { return create() == nil }, "the session of the holder has not expired")
	require.Error(t, g.Err())
	short.Network.Restore()
	require.NoError(t, old.Delete(path, 0))
	testenv.Eventually(t, func() bool { return g.Release() == nil }, "the release is not confirmed")
}
