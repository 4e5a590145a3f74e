package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// checksPerMinute simulates a minute of checks that are acknowledged after a round trip. It
// returns their number, and the shortest remaining lease at an acknowledgement.
func checksPerMinute(t *testing.T, interval, roundTrip time.Duration) (n int, left time.Duration) {
	const step = timeout / 32
	l := &lease{timeout: timeout}
	l.add(at(0), at(roundTrip))
	last, left := time.Duration(0), timeout
	for now := roundTrip; now < time.Minute; now += step {
		if !l.due(at(last), at(now), interval) {
			continue
		}
		last = now
		now += roundTrip
		left = min(left, l.deadline().Sub(at(now)))
		require.False(t, Expired(l.deadline(), at(now)), "with round trips of %v the lease ended %v before an acknowledgement at %v", roundTrip, -left, now)
		l.add(at(last), at(now))
		n++
	}
	return n, left
}

func TestLease_CheckInterval(t *testing.T) {
	byDefault, _ := checksPerMinute(t, 0, 2*time.Millisecond)
	require.InDelta(t, 120, byDefault, 5)
	slowest, left := checksPerMinute(t, timeout/4, 2*time.Millisecond)
	require.InDelta(t, 56, slowest, 4)
	require.Greater(t, left, timeout/8)
	longer, _ := checksPerMinute(t, timeout, 2*time.Millisecond)
	require.Equal(t, slowest, longer, "a quarter of the timeout is the limit")
	between, _ := checksPerMinute(t, timeout/6, 2*time.Millisecond)
	require.Less(t, between, byDefault)
	require.Greater(t, between, slowest)
	// With round trips longer than that, the first lease, a third of the timeout, ends too early
	// by default as well.
	for roundTrip := time.Millisecond; roundTrip < timeout/7; roundTrip += timeout / 64 {
		checksPerMinute(t, 0, roundTrip)
		checksPerMinute(t, timeout/4, roundTrip)
		checksPerMinute(t, timeout/6, roundTrip)
	}
}

// The shortest interval of the subscriptions that require a lease applies.
func TestSubscription_CheckEvery(t *testing.T) {
	runTest(t, 4*time.Second, func(t *testing.T, w *fixture) {
		slow, quick := Subscribe(w.conn, 0), Subscribe(w.conn, 0)
		defer slow.Close()
		defer quick.Close()
		slow.CheckEvery(time.Second)
		slow.Prove(w.path, time.Now())
		perMinute := func() int {
			time.Sleep(5 * time.Second)
			w.srv.ResetLog()
			time.Sleep(time.Minute)
			return w.srv.Log().Requests().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpMulti }).Count()
		}
		require.InDelta(t, 57, perMinute(), 4)
		quick.Prove(create(t, w.conn), time.Now())
		require.InDelta(t, 120, perMinute(), 5)
		quick.StopProving()
		require.InDelta(t, 57, perMinute(), 4)
		require.True(t, slow.State().Proven)
	})
}
