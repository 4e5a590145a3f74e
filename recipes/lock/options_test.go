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

// A program requests a session timeout of 60 s and is granted 20 s. A lock that states 60 s is
// rejected, or, if it is created before the connection has a session, its leases are those of 20
// s.
func TestOptions_SessionTimeoutExceedsGranted(t *testing.T) {
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
		time.Sleep(40 * time.Second) // longer than it takes until leases have their full length
		require.LessOrEqual(t, time.Until(h.Deadline()), 10*time.Second)
		require.NoError(t, h.Release())
		_, err = NewMutex(conn, "/l", long)
		require.ErrorIs(t, err, recipes.ErrInvalid)
		require.ErrorContains(t, err, "the servers have granted 20s")
		conn.Close()
	})
}

func TestOptions(t *testing.T) {
	for name, option := range map[string]Option{
		"negative delay": WithLockDelay(-1),
		"too long name":  WithName(strings.Repeat("x", maxName+1)),
		"nil":            nil,
		"timeout":        recipes.WithSessionTimeout(time.Millisecond),
	} {
		_, err := NewMutex(new(zk.Conn), node, option)
		require.ErrorIs(t, err, recipes.ErrInvalid, name)
		_, err = NewRWMutex(new(zk.Conn), node, option)
		require.ErrorIs(t, err, recipes.ErrInvalid, name)
	}
	_, err := NewMutex(nil, node)
	require.ErrorIs(t, err, recipes.ErrInvalid)
	_, err = NewMutex(new(zk.Conn), "no/slash")
	require.ErrorIs(t, err, recipes.ErrInvalid)
}
