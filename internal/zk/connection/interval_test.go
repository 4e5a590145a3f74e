package connection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// checksPerMinute simulates a minute of checks that are acknowledged after a round trip, for a
// user with the timeout stated. It returns their number, and the shortest remaining lease at an
// acknowledgement.
func checksPerMinute(t *testing.T, stated, interval, roundTrip time.Duration) (n int, left time.Duration) {
	step := stated / 32
	l := &lease{timeout: timeout}
	l.add(at(0), at(roundTrip))
	last, left := time.Duration(0), timeout
	for now := roundTrip; now < time.Minute; now += step {
		if !l.due(stated, at(last), at(now), interval) {
			continue
		}
		last = now
		now += roundTrip
		left = min(left, l.until(stated).Sub(at(now)))
		require.False(t, limit.Expired(l.until(stated), at(now)), "with round trips of %v the lease ended %v before an acknowledgement at %v", roundTrip, -left, now)
		l.add(at(last), at(now))
		n++
	}
	return n, left
}

func TestLease_CheckInterval(t *testing.T) {
	byDefault, _ := checksPerMinute(t, timeout, 0, 2*time.Millisecond)
	require.InDelta(t, 120, byDefault, 5)
	slowest, left := checksPerMinute(t, timeout, timeout/4, 2*time.Millisecond)
	require.InDelta(t, 56, slowest, 4)
	require.Greater(t, left, timeout/8)
	longer, _ := checksPerMinute(t, timeout, timeout, 2*time.Millisecond)
	require.Equal(t, slowest, longer, "a quarter of the timeout is the limit")
	between, _ := checksPerMinute(t, timeout, timeout/6, 2*time.Millisecond)
	require.Less(t, between, byDefault)
	require.Greater(t, between, slowest)
	// With round trips longer than that, the first lease, a third of the timeout, ends too early
	// by default as well.
	for _, stated := range []time.Duration{timeout, timeout * 7 / 8, timeout * 2 / 3, timeout / 4, timeout / 40} {
		for roundTrip := time.Millisecond; roundTrip < stated/7; roundTrip += stated / 64 {
			checksPerMinute(t, stated, 0, roundTrip)
			checksPerMinute(t, stated, stated/4, roundTrip)
			checksPerMinute(t, stated, stated/6, roundTrip)
		}
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
