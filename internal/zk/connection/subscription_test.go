package connection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// checksIn returns the number of checks that the client sends during d. The number is a little higher if the
// goroutine of the monitor runs more often, because it then sends each check sooner after the check is due.
func checksIn(t *bubble.Test, d time.Duration) int {
	t.Server.ResetLog()
	time.Sleep(d)
	return t.Server.Log().Requests().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpMulti }).Count()
}

// TestSubscribe_GivesShorterLeaseForShorterTimeout checks that a subscription with a shorter timeout has shorter
// leases, does not change the leases of other subscriptions of the connection, and causes more checks only while it
// requires a lease.
func TestSubscribe_GivesShorterLeaseForShorterTimeout(t *testing.T) {
	const shorter = time.Second
	runTest(t, 10*time.Second, func(t *bubble.Test) {
		long := Subscribe(t.Conn, 0)
		defer long.Close()
		long.Prove(znode, time.Now())
		time.Sleep(20 * time.Second)
		rate, before := checksIn(t, time.Minute), long.State()
		require.True(t, before.Proven)
		latest := before.Deadline
		requireLong := func() {
			require.Equal(t, before.Lapses, long.State().Lapses)
			require.True(t, long.State().Proven)
			require.False(t, long.Deadline().Before(latest), "the deadline decreases")
			latest = long.Deadline()
		}
		for range 2 {
			short := Subscribe(t.Conn, shorter)
			requireLong()
			sent := time.Now()
			short.Prove(create(t), sent)
			require.True(t, short.State().Proven)
			require.Equal(t, shorter/2, short.Deadline().Sub(sent))
			for range 100 {
				time.Sleep(77 * time.Millisecond)
				requireLong()
				require.True(t, short.State().Proven)
				require.LessOrEqual(t, time.Until(short.Deadline()), shorter/2)
			}
			require.Zero(t, short.State().Lapses)
			require.InDelta(t, 480, checksIn(t, time.Minute), 20)
			short.StopProving()
			require.InDelta(t, rate, checksIn(t, time.Minute), 6)
			short.Close()
			require.False(t, short.State().Proven, "a closed subscription has a lease")
			require.InDelta(t, rate, checksIn(t, time.Minute), 6)
		}
	})
}

// TestSubscribe_ShorterLeaseEndsFirst checks that the lease of the subscription with the shorter timeout ends
// first, and that only this subscription is notified then.
func TestSubscribe_ShorterLeaseEndsFirst(t *testing.T) {
	runTest(t, 10*time.Second, func(t *bubble.Test) {
		long, short := Subscribe(t.Conn, 0), Subscribe(t.Conn, time.Second)
		defer long.Close()
		defer short.Close()
		long.Prove(znode, time.Now())
		short.Prove(create(t), time.Now())
		time.Sleep(20 * time.Second)
		t.Server.Blackhole(zktest.BothWays)
		for _, s := range []*Subscription{long, short} {
			select {
			case <-s.Changed():
			default:
			}
		}
		begin := time.Now()
		<-short.Changed()
		require.False(t, short.State().Proven)
		require.WithinDuration(t, begin.Add(450*time.Millisecond), time.Now(), 100*time.Millisecond)
		require.Empty(t, long.Changed())
		require.True(t, long.State().Proven)
		<-long.Changed()
		require.False(t, long.State().Proven)
		require.WithinDuration(t, begin.Add(4950*time.Millisecond), time.Now(), 100*time.Millisecond)
	})
}

// TestSubscribe_SendsNoCheckForBriefLease checks that a user with a shorter timeout that requires a lease only
// briefly, as of a lock, causes no checks.
func TestSubscribe_SendsNoCheckForBriefLease(t *testing.T) {
	runTest(t, 10*time.Second, func(t *bubble.Test) {
		long := Subscribe(t.Conn, 0)
		defer long.Close()
		long.Prove(znode, time.Now())
		rate := checksIn(t, time.Minute)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 100 {
				time.Sleep(500 * time.Millisecond)
				short := Subscribe(t.Conn, time.Second)
				short.Prove(create(t), time.Now())
				time.Sleep(100 * time.Millisecond)
				short.Close()
			}
		}()
		require.InDelta(t, rate, checksIn(t, time.Minute), 6)
		<-done
	})
}

// TestSubscribe_StartsGoroutineInTimeForShorterTimeout checks that the monitor starts its goroutine early enough
// for a subscription with a shorter timeout, although a subscription with a longer timeout would need the goroutine
// later.
func TestSubscribe_StartsGoroutineInTimeForShorterTimeout(t *testing.T) {
	const shorter = 500 * time.Millisecond
	runTest(t, 40*time.Second, func(t *bubble.Test) {
		long := Subscribe(t.Conn, 0)
		defer long.Close()
		long.Prove(znode, time.Now())
		short := Subscribe(t.Conn, shorter)
		defer short.Close()
		short.Prove(create(t), time.Now())
		for range 200 {
			time.Sleep(10 * time.Millisecond)
			require.True(t, short.State().Proven)
			require.Zero(t, short.State().Lapses)
		}
	})
}

// TestCheckInterval_ChecksZnodeDespiteOtherWrites checks that the monitor checks whether the znode of a
// subscription with a long check interval exists, although the writes of other users renew the lease of the
// subscription.
func TestCheckInterval_ChecksZnodeDespiteOtherWrites(t *testing.T) {
	runTest(t, 10*time.Second, func(t *bubble.Test) {
		long := (&Options{Conn: t.Conn, CheckInterval: 10 * time.Second}).Subscribe()
		defer long.Close()
		long.Prove(znode, time.Now())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 150 { // use the connection for 90 seconds
				brief := Subscribe(t.Conn, 0)
				brief.Prove(create(t), time.Now())
				time.Sleep(100 * time.Millisecond)
				brief.Close()
				time.Sleep(500 * time.Millisecond)
			}
		}()
		time.Sleep(20 * time.Second)
		require.InDelta(t, 12, checksIn(t, time.Minute), 2)
		require.NoError(t, t.Conn.Delete(znode, -1))
		time.Sleep(6 * time.Second)
		require.True(t, long.State().Missing)
		<-done
	})
}

// TestPause_DelaysLeaseDespiteShorterTimeout checks that a subscription with a shorter timeout has no lease after a
// pause of the process until the servers have reported the activity of the client, which may take a quarter of the
// granted timeout. The client has sent no pings during the pause.
func TestPause_DelaysLeaseDespiteShorterTimeout(t *testing.T) {
	runTest(t, 10*time.Second, func(t *bubble.Test) {
		require.NoError(t, checkTimeout(t.Conn, time.Second))
		time.Sleep(time.Minute)
		p := pauseMonitors.Of(t.Conn)
		p.mu.Lock()
		p.running = p.running.Add(-6 * time.Second)
		p.mu.Unlock()
		time.Sleep(time.Second)
		sub := Subscribe(t.Conn, time.Second)
		defer sub.Close()
		sent := time.Now()
		sub.Prove(znode, sent)
		for !sub.State().Proven {
			require.Zero(t, sub.Deadline())
			time.Sleep(10 * time.Millisecond)
		}
		require.WithinDuration(t, sent.Add(2500*time.Millisecond), time.Now(), 200*time.Millisecond)
	})
}

// TestSubscription_UsesShortestCheckInterval checks that the monitor uses the shortest check interval of the
// subscriptions that require a lease.
func TestSubscription_UsesShortestCheckInterval(t *testing.T) {
	runTest(t, 4*time.Second, func(t *bubble.Test) {
		slow, quick := (&Options{Conn: t.Conn, CheckInterval: time.Second}).Subscribe(), Subscribe(t.Conn, 0)
		defer slow.Close()
		defer quick.Close()
		slow.Prove(znode, time.Now())
		perMinute := func() int {
			time.Sleep(5 * time.Second)
			t.Server.ResetLog()
			time.Sleep(time.Minute)
			return t.Server.Log().Requests().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpMulti }).Count()
		}
		require.InDelta(t, 57, perMinute(), 4)
		quick.Prove(create(t), time.Now())
		require.InDelta(t, 120, perMinute(), 5)
		quick.StopProving()
		require.InDelta(t, 57, perMinute(), 4)
		require.True(t, slow.State().Proven)
	})
}
