package raftlog_test

// What WithStopGuard keeps of a lease.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
)

// TestStopGuard: who cannot renew its lease hears of the end while the lease has the guard left,
// and leads again when the lease goes on without ever having ended.
func TestStopGuard(t *testing.T) {
	const guard = 400 * time.Millisecond
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.leader(t)
		n := w.node(p)
		c := stand(t, n, "e", raftlog.WithStopGuard(guard))
		token := c.awaitLeader(t)
		l := c.Current().Leadership
		heal := w.isolate(p)
		<-l.Done()
		require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
		require.InDelta(t, guard, n.Info().Lease, float64(10*time.Millisecond))
		heal()
		require.Equal(t, token, c.awaitLeader(t))
		require.Equal(t, p, n.Info().Leader, "the lease has ended in between")
	}, slowly)
}

func TestStopGuardIsChecked(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		for _, d := range []time.Duration{-1, time.Second + 1} {
			_, err := raftlog.NewElection(w.node(peer(0)), "e", raftlog.WithStopGuard(d))
			require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
		}
		_, err := raftlog.NewElection(w.node(peer(0)), "e", raftlog.WithStopGuard(time.Second))
		require.NoError(t, err)
	}, slowly)
}
