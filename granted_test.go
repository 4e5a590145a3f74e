package leaderelection_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// A server grants less than is assumed by default, and nothing is said to NewElection: a
// partitioned leader stops leading before another candidate leads.
func TestGrantedTimeoutIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t, zktest.WithTick(250*time.Millisecond))
		candidate := func() (*zk.Conn, *leaderelection.Election) {
			conn, _, err := srv.Connect(time.Second)
			require.NoError(t, err)
			time.Sleep(time.Second)
			e, err := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode())
			require.NoError(t, err)
			go func() { _ = e.ElectLeader() }()
			time.Sleep(time.Second)
			return conn, e
		}
		conn, old := candidate()
		_, next := candidate()
		grant := old.Current().Leadership
		require.NotNil(t, grant)
		srv.Partition(conn.SessionID())
		for next.Current().Leadership == nil {
			time.Sleep(time.Millisecond)
		}
		require.ErrorIs(t, grant.Err(), leaderelection.ErrLeaseExpired)
		_ = old.Resign()
		_ = next.Resign()
		srv.Heal()
		time.Sleep(10 * time.Second)
	})
}

// A session timeout that is longer than what was granted is rejected by everything that
// takes options.
func TestLongerThanGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t, zktest.WithSessionTimeouts(time.Second, 20*time.Second))
		conn, _, err := srv.Connect(time.Minute)
		require.NoError(t, err)
		time.Sleep(time.Second)
		long := leaderelection.WithSessionTimeout(20*time.Second + time.Millisecond)
		_, err = leaderelection.NewElection(conn, "/election", long)
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
		require.ErrorContains(t, err, "the servers have granted 20s")
		_, err = leaderelection.Observe(t.Context(), conn, "/election", long)
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
		_, err = leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(20*time.Second))
		require.NoError(t, err)
		conn.Close()
	})
}
