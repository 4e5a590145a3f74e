package lock

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestOptions_RejectTimeoutAboveGrantedTimeout checks that WithSessionTimeout is rejected if the servers have
// granted the connection a shorter session timeout. If the lock is created before the connection has a session,
// its leases are those of the granted timeout.
func TestOptions_RejectTimeoutAboveGrantedTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t, zktest.WithSessionTimeouts(4*time.Second, 20*time.Second))
		hook := srv.Before(zktest.Match{Op: zktest.OpConnect}, zktest.Cut)
		conn, _, err := srv.Connect(time.Minute)
		require.NoError(t, err)
		long := recipes.WithSessionTimeout(time.Minute)
		m, err := NewMutex(conn, "/l", long)
		require.NoError(t, err)
		hook.Remove()
		h, err := m.Lock(t.Context())
		require.NoError(t, err)
		time.Sleep(40 * time.Second) // by now leases have reached their full length
		require.LessOrEqual(t, time.Until(h.Deadline()), 10*time.Second)
		require.NoError(t, h.Release())
		_, err = NewMutex(conn, "/l", long)
		require.ErrorIs(t, err, recipes.ErrInvalid)
		require.ErrorContains(t, err, "the servers have granted 20s")
		conn.Close()
	})
}

// TestOptions_ConstructorsRejectInvalidOptions checks that NewMutex, NewRWMutex and NewSemaphore reject invalid
// options, paths and connections.
func TestOptions_ConstructorsRejectInvalidOptions(t *testing.T) {
	for kind, create := range map[string]func(conn *zk.Conn, path string, opts ...Option) error{
		"mutex":     func(c *zk.Conn, p string, opts ...Option) error { _, err := NewMutex(c, p, opts...); return err },
		"RWMutex":   func(c *zk.Conn, p string, opts ...Option) error { _, err := NewRWMutex(c, p, opts...); return err },
		"semaphore": func(c *zk.Conn, p string, opts ...Option) error { _, err := NewSemaphore(c, p, 1, opts...); return err },
	} {
		for name, opts := range map[string][]Option{
			"negative delay": {WithLockDelay(-1)},
			"too long name":  {WithName(strings.Repeat("x", maxName+1))},
			"nil":            {nil},
			"timeout":        {recipes.WithSessionTimeout(time.Millisecond)},
			"both layouts":   {WithCuratorLayout(), recipes.WithKazooLayout()},
		} {
			require.ErrorIs(t, create(new(zk.Conn), node, opts...), recipes.ErrInvalid, "%s: %s", kind, name)
		}
		require.ErrorIs(t, create(nil, node), recipes.ErrInvalid, kind)
		require.ErrorIs(t, create(new(zk.Conn), "no/slash"), recipes.ErrInvalid, kind)
	}
	_, err := NewSemaphore(new(zk.Conn), node, 1, recipes.WithACL(zk.WorldACL(zk.PermAll&^zk.PermWrite)))
	require.ErrorIs(t, err, recipes.ErrInvalid, "a holder could not wake its follower")
	_, err = NewSemaphore(new(zk.Conn), node, 0, WithCuratorLayout())
	require.ErrorIs(t, err, recipes.ErrInvalid)
}
