package connection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// checksIn returns how many checks are sent during d. It differs by a few if the goroutine of the
// monitor runs more often, because checks are less late then.
func checksIn(t *bubble.Test, d time.Duration) int {
	t.Server.ResetLog()
	time.Sleep(d)
	return t.Server.Log().Requests().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpMulti }).Count()
}

// A subscription with a shorter timeout has shorter leases. It does not change those of other
// subscriptions of the connection, and causes more checks only while it requires a lease.
func TestSubscribe_ShorterTimeout(t *testing.T) {
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
			require.False(t, short.State().Proven, "after Close")
			require.InDelta(t, rate, checksIn(t, time.Minute), 6)
		}
	})
}

// The lease of the shorter timeout ends first, and only its subscription is notified.
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

// A lock that is held briefly with a shorter timeout needs no check.
func TestSubscribe_ShorterTimeoutBriefly(t *testing.T) {
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

// The monitor starts its goroutine later for a longer timeout. A shorter one needs it earlier.
func TestSubscribe_ShorterTimeoutStartsGoroutine(t *testing.T) {
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

// The writes of other users renew the lease of a user that needs checks rarely, but do not show
// whether its znode exists.
func TestCheckInterval_ZnodeIsChecked(t *testing.T) {
	runTest(t, 10*time.Second, func(t *bubble.Test) {
		long := (&Options{Conn: t.Conn, CheckInterval: 10 * time.Second}).Subscribe()
		defer long.Close()
		long.Prove(znode, time.Now())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 150 { // wait for 90 seconds
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

// A shorter timeout does not replace the rule of the granted one: after a pause of the process, in
// which the client has sent no pings, there is no lease before the servers have reported its
// activity, which may take a quarter of the granted timeout.
func TestPause_ShorterTimeout(t *testing.T) {
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

// The shortest interval of the subscriptions that require a lease applies.
func TestSubscription_CheckInterval(t *testing.T) {
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
