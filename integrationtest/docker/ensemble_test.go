package docker_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// TestEnsemble_InjectsAndRepairsFaults checks that each fault of an ensemble, and its repair, has the documented
// effect. All faults use one ensemble, because the start of an ensemble takes most of the time.
func TestEnsemble_InjectsAndRepairsFaults(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend ensemble.Backend) {
		e := ensemble.StartServers(t, ensemble.Config{Servers: 3, Backend: backend})
		assert.Equal(t, backend, e.Backend())
		addrs := e.Addrs()
		conn := connect(t, addrs...)
		_, err := conn.Create("/kept", []byte("value"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)

		for _, fault := range []struct {
			name string
			run  func(*testing.T, *ensemble.Ensemble)
		}{
			{"kill the leader", killLeader},
			{"pause a follower", pauseFollower},
			{"cut off a follower", cutOffFollower},
			{"cut off the leader", cutOffLeader},
		} {
			start := time.Now()
			fault.run(t, e)
			t.Logf("%s: %v", fault.name, time.Since(start).Round(time.Millisecond))
		}
		assert.Equal(t, addrs, e.Addrs())
	})
}

func killLeader(t *testing.T, e *ensemble.Ensemble) {
	old := waitLeader(t, e, -1)
	require.NoError(t, e.Kill(old))
	require.NoError(t, e.Kill(old), "killing twice")
	_, err := e.FourLetter(old, "ruok")
	require.Error(t, err)
	assert.ErrorContains(t, e.Pause(old), "not running")
	waitLeader(t, e, old)

	require.NoError(t, e.Start(old))
	require.NoError(t, e.Start(old), "starting twice")
	waitReady(t, e, old)
	data, _, err := connect(t, e.Addr(old)).Get("/kept")
	require.NoError(t, err)
	assert.Equal(t, "value", string(data))
}

func pauseFollower(t *testing.T, e *ensemble.Ensemble) {
	i := findFollower(t, e)
	require.NoError(t, e.Pause(i))
	require.NoError(t, e.Pause(i), "pausing twice")
	_, err := e.FourLetter(i, "ruok")
	require.Error(t, err, "a paused server answered")
	require.NoError(t, e.Ready(t.Context()), "the other servers must serve clients")

	require.NoError(t, e.Resume(i))
	waitReady(t, e, i)
	// After a long pause, the server may notice only now that it has lost its leader, and then closes all
	// connections.
	testenv.Eventually(t, func() bool {
		answer, err := e.FourLetter(i, "ruok")
		return err == nil && answer == "imok"
	}, "the server does not answer")

	// Kill must also work on a paused server.
	require.NoError(t, e.Pause(i))
	require.NoError(t, e.Restart(i))
	waitReady(t, e, i)
}

func cutOffFollower(t *testing.T, e *ensemble.Ensemble) {
	i := findFollower(t, e)
	leader := waitLeader(t, e, -1)
	reader, writer := connect(t, e.Addr(i)), connect(t, e.Addr(i))
	other := connect(t, e.Addr(leader))

	require.NoError(t, e.CutOff(i))
	written := make(chan error, 1)
	go func() {
		_, err := writer.Create("/stalled", nil, 0, zk.WorldACL(zk.PermAll))
		written <- err
	}()
	_, err := other.Create("/unseen", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err, "the other servers are a quorum")
	exists, _, err := reader.Exists("/unseen")
	require.NoError(t, err, "a server that is cut off must serve reads")
	assert.False(t, exists, "a server that is cut off returns a later write")
	select {
	case err := <-written:
		t.Fatalf("a write to a server that is cut off returns: %v", err)
	default:
	}
	mode, err := e.Mode(i)
	require.NoError(t, err, "clients cannot reach the server")
	assert.Equal(t, "follower", mode)

	waitNotServing(t, e, i)
	require.Error(t, <-written)
	require.NoError(t, e.Heal(i))
	waitHealed(t, e, i)
	exists, _, err = connect(t, e.Addr(i)).Exists("/unseen")
	require.NoError(t, err)
	assert.True(t, exists)
}

func cutOffLeader(t *testing.T, e *ensemble.Ensemble) {
	old := waitLeader(t, e, -1)
	require.NoError(t, e.CutOff(old))
	require.NoError(t, e.CutOff(old), "cutting twice")
	waitLeader(t, e, old)
	waitNotServing(t, e, old)

	// After a restart, the server is still cut off.
	require.NoError(t, e.Restart(old))
	assert.Never(t, func() bool {
		_, err := e.Mode(old)
		return err == nil
	}, 3*time.Second, 100*time.Millisecond, "a server that is cut off serves clients")

	require.NoError(t, e.Heal(old))
	require.NoError(t, e.Heal(old), "healing twice")
	waitHealed(t, e, old)
	mode, err := e.Mode(old)
	require.NoError(t, err)
	assert.Equal(t, "follower", mode)
}

// waitHealed waits until server i serves clients after a partition has ended. A connection between servers that was
// opened while the network changed can stay open without delivering anything. ZooKeeper's election of a leader does
// not replace such a connection for minutes, so waitHealed then restarts the server.
func waitHealed(t *testing.T, e *ensemble.Ensemble, i int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.WaitLimit/3)
	defer cancel()
	if err := e.WaitReady(ctx, i); err != nil {
		t.Logf("server %d is restarted after the partition: %v", i, err)
		require.NoError(t, e.Restart(i))
		waitReady(t, e, i)
	}
}

// waitNotServing waits until server i has noticed that it is cut off, and has stopped serving clients.
func waitNotServing(t *testing.T, e *ensemble.Ensemble, i int) {
	t.Helper()
	testenv.Eventually(t, func() bool {
		answer, err := e.FourLetter(i, "srvr")
		return err == nil && answer == "This ZooKeeper instance is not currently serving requests\n"
	}, "the server still serves clients")
}

// TestEnsemble_StandaloneServerKeepsData checks that a single server uses the configured properties, keeps its data
// after a restart, and cannot be used after Close.
func TestEnsemble_StandaloneServerKeepsData(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend ensemble.Backend) {
		e := ensemble.StartServers(t, ensemble.Config{
			Backend:    backend,
			Properties: map[string]string{"maxSessionTimeout": "60000"},
		})
		require.Equal(t, 1, e.Servers())
		leader, err := e.Leader()
		require.NoError(t, err)
		assert.Zero(t, leader)
		conf, err := e.FourLetter(0, "conf")
		require.NoError(t, err)
		assert.Contains(t, conf, "maxSessionTimeout=60000")
		assert.Contains(t, conf, "tickTime=200")
		assert.ErrorContains(t, e.CutOff(0), "no other servers")

		conn := connect(t, e.Addr(0))
		_, err = conn.CreateTTL("/ttl", nil, zk.FlagTTL, zk.WorldACL(zk.PermAll), time.Hour)
		require.NoError(t, err)
		require.NoError(t, e.Restart(0))
		waitReady(t, e, 0)
		exists, _, err := connect(t, e.Addr(0)).Exists("/ttl")
		require.NoError(t, err)
		assert.True(t, exists, "the restart has lost data")

		require.NoError(t, e.Close())
		require.NoError(t, e.Close(), "closing twice")
		assert.ErrorIs(t, e.Start(0), ensemble.ErrClosed)
		assert.ErrorIs(t, e.WaitReady(t.Context(), 0), ensemble.ErrClosed)
		_, err = e.Leader()
		assert.ErrorIs(t, err, ensemble.ErrNoLeader)
	})
}

// TestStart_ReturnsLogOfServerThatExits checks that Start returns immediately if a server exits, with an error that
// contains the log of the server.
func TestStart_ReturnsLogOfServerThatExits(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend ensemble.Backend) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := ensemble.Start(ctx, ensemble.Config{
			Backend:    backend,
			Properties: map[string]string{"minSessionTimeout": "many"},
		})
		require.ErrorContains(t, err, "exited")
		assert.ErrorContains(t, err, "many", "the log is missing")
	})
}
