package connection

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// znode is the path of the ephemeral znode that [runTest] creates.
const znode = "/n0000000000"

// runTest runs f in a bubble with a server and a connection that has a session and an ephemeral znode.
func runTest(t *testing.T, granted time.Duration, f func(*bubble.Test)) {
	bubble.Run(t, func(t *bubble.Test) {
		t.Conn = bubble.Connect(t, t.Server, time.Minute)
		require.Equal(t, znode, create(t))
		f(t)
	}, zktest.WithSessionTimeouts(granted, granted))
}

// create creates an ephemeral znode.
func create(t *bubble.Test) string {
	path, err := t.Conn.Create("/n", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	return path
}

// countLogged waits until all goroutines of the bubble are blocked, and returns how often the log contains text.
func countLogged(log *testenv.Buffer, text string) int {
	synctest.Wait()
	return strings.Count(log.String(), text)
}

// copyLease returns a copy of the lease of m.
func copyLease(m *monitor) lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lease
}

func timeoutOf(s *Subscription) time.Duration {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.timeout(s.stated)
}

// TestTimeout_IsShorterOfGrantedAndConfigured checks that SessionTimeout returns the granted timeout, or the
// configured timeout if that is shorter, and that leases use the returned timeout.
func TestTimeout_IsShorterOfGrantedAndConfigured(t *testing.T) {
	for name, c := range map[string]struct{ granted, stated, want time.Duration }{
		"granted less than is assumed": {time.Second, 0, time.Second},
		"granted more than is assumed": {20 * time.Second, 0, 20 * time.Second},
		"stated less":                  {20 * time.Second, 3 * time.Second, 3 * time.Second},
		"stated more":                  {2 * time.Second, time.Minute, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			runTest(t, c.granted, func(t *bubble.Test) {
				require.Equal(t, c.want, SessionTimeout(t.Conn, c.stated))
				sub := Subscribe(t.Conn, c.stated)
				defer sub.Close()
				sub.Prove(znode, time.Now())
				time.Sleep(2*c.want + c.want/100)
				lease := time.Until(sub.Deadline())
				require.LessOrEqual(t, lease, c.want/2)
				require.Greater(t, lease, c.want/4)
			})
		})
	}
}

// TestTimeout_IsAssumedUntilGranted checks that a subscription that was created before the first session assumes
// the configured timeout, or 4 s, until the servers grant a timeout, and that a warning is logged once if the
// granted timeout is shorter than the configured timeout.
func TestTimeout_IsAssumedUntilGranted(t *testing.T) {
	for name, c := range map[string]struct{ granted, stated, before, after time.Duration }{
		"less":             {time.Second, 0, 4 * time.Second, time.Second},
		"more":             {20 * time.Second, 0, 4 * time.Second, 20 * time.Second},
		"less than stated": {time.Second, time.Minute, time.Minute, time.Second},
		"more than stated": {20 * time.Second, 3 * time.Second, 3 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.Start(t, zktest.WithSessionTimeouts(c.granted, c.granted))
				hook := srv.Before(zktest.Match{Op: zktest.OpConnect}, zktest.Cut)
				conn, _, err := srv.Connect(time.Minute)
				require.NoError(t, err)
				require.NoError(t, checkTimeout(conn, c.stated), "the granted timeout is not known yet")
				require.Equal(t, c.before, SessionTimeout(conn, c.stated))
				var log testenv.Buffer
				sub := (&Options{Conn: conn, Timeout: c.stated, Log: slog.New(slog.NewTextHandler(&log, nil))}).Subscribe()
				defer sub.Close()
				require.Equal(t, c.before, timeoutOf(sub))
				hook.Remove()
				time.Sleep(10 * time.Second)
				require.True(t, sub.State().Up)
				require.Equal(t, c.after, timeoutOf(sub))
				srv.DropConnections()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				warnings := countLogged(&log, "granted=")
				if c.stated > c.granted {
					require.Error(t, checkTimeout(conn, c.stated))
					require.Equal(t, 1, warnings, "%s", log.String())
				} else {
					require.NoError(t, checkTimeout(conn, c.stated))
					require.Zero(t, warnings)
				}
				conn.Close()
			})
		})
	}
}

// TestTimeout_ChangesAfterReconnect checks that a shorter timeout that the servers grant after a reconnect applies
// immediately, and that a longer timeout does not apply to earlier proofs.
func TestTimeout_ChangesAfterReconnect(t *testing.T) {
	runTest(t, 8*time.Second, func(t *bubble.Test) {
		sub := Subscribe(t.Conn, 0)
		defer sub.Close()
		sub.Prove(znode, time.Now())
		time.Sleep(20 * time.Second)
		m := sub.m
		grant := func(d time.Duration) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.granted = d
			m.updateTimeout()
		}
		grant(2 * time.Second)
		require.Equal(t, 2*time.Second, copyLease(m).timeout)
		grant(time.Minute)
		require.Equal(t, 2*time.Second, copyLease(m).timeout, "a longer timeout does not apply to earlier proofs")
		m.mu.Lock()
		m.lease.clear()
		m.mu.Unlock()
		grant(time.Minute)
		require.Equal(t, time.Minute, copyLease(m).timeout)
	})
}

// TestMonitor_ChangesEpochAtEachBreak checks that the monitor changes Epoch at each break of the connection, even
// if the session timeout is long.
func TestMonitor_ChangesEpochAtEachBreak(t *testing.T) {
	for _, granted := range []time.Duration{4 * time.Second, 40 * time.Second, 5 * time.Minute} {
		runTest(t, granted, func(t *bubble.Test) {
			sub := Subscribe(t.Conn, 0)
			defer sub.Close()
			for i := range 40 {
				time.Sleep(10*time.Second + time.Duration(i)*37*time.Millisecond)
				before := sub.State().Epoch
				time.Sleep(time.Duration(i) * granted / 32 / 40)
				t.Server.DropConnections()
				time.Sleep(5 * time.Second)
				require.NotEqual(t, before, sub.State().Epoch, "%v, break %d", granted, i)
			}
		})
	}
}

// TestMonitor_IncreasesEpochAtReportedBreak checks that a break that package zkdial reports increases Epoch even if
// the state of the connection is the same before and after the break.
func TestMonitor_IncreasesEpochAtReportedBreak(t *testing.T) {
	runTest(t, 4*time.Second, func(t *bubble.Test) {
		sub := Subscribe(t.Conn, 0)
		defer sub.Close()
		epoch := sub.State().Epoch
		require.Equal(t, epoch, sub.State().Epoch)
		RecordOf(t.Conn).Push(Event{Kind: Broken})
		require.Greater(t, sub.State().Epoch, epoch)
		// Epoch also increases while the connection is down, because the connection may have been up between two
		// polls.
		t.Server.Stop()
		time.Sleep(time.Second)
		require.False(t, sub.State().Up)
		epoch = sub.State().Epoch
		RecordOf(t.Conn).Push(Event{Kind: Broken})
		require.Greater(t, sub.State().Epoch, epoch)
	})
}

// TestMonitor_CountsLapseBeforeRenewal checks that Lapses counts a lease that has ended even if a proof renews the
// lease before State is called, because the user of the lease may have compared the deadline with the clock.
func TestMonitor_CountsLapseBeforeRenewal(t *testing.T) {
	runTest(t, 4*time.Second, func(t *bubble.Test) {
		sub := Subscribe(t.Conn, 0)
		defer sub.Close()
		sub.Prove(znode, time.Now())
		time.Sleep(20 * time.Second)
		before := sub.State()
		require.True(t, before.Proven)
		// Simulate that the goroutine of the monitor does not run while the lease ends, and then receives the reply
		// to a check: the proofs below are so old that the lease has ended.
		m := sub.m
		m.mu.Lock()
		late := time.Now().Add(-3 * time.Second)
		m.lease.proofs = []proof{{late.Add(-2 * time.Second), late.Add(-2 * time.Second)}, {late, late}}
		session := m.seen.Session
		m.mu.Unlock()
		now := time.Now()
		require.NoError(t, m.apply(checked{sent: now, acked: now, session: session}, nil))
		require.NoError(t, m.apply(checked{sent: now.Add(time.Millisecond), acked: now, session: session}, nil))
		require.Equal(t, before.Lapses+1, sub.State().Lapses)
	})
}

// TestProve_GrantsShortLeaseAfterLeaseEnds checks that the lease that Prove starts after an earlier
// lease has ended is as short as a lease after a first proof.
func TestProve_GrantsShortLeaseAfterLeaseEnds(t *testing.T) {
	runTest(t, 4*time.Second, func(t *bubble.Test) {
		sub, other := Subscribe(t.Conn, 0), Subscribe(t.Conn, 0)
		defer sub.Close()
		defer other.Close()
		sub.Prove(znode, time.Now())
		time.Sleep(20 * time.Second)
		require.Greater(t, time.Until(sub.Deadline()), 4*time.Second/3)
		sub.StopProving()
		time.Sleep(2100 * time.Millisecond)
		require.False(t, sub.State().Proven)
		sent := time.Now()
		sub.Prove(znode, sent)
		require.Equal(t, 4*time.Second/3, sub.Deadline().Sub(sent))
	})
}

// TestProve_ContinuesUnusedLease checks that Prove continues a lease that no subscription has used for a while,
// without a check before the next regular check. If that lease ends soon, Prove waits for a check, so that a
// leadership does not begin with a suspension.
func TestProve_ContinuesUnusedLease(t *testing.T) {
	runTest(t, 4*time.Second, func(t *bubble.Test) {
		var checks atomic.Int64
		sub, next := Subscribe(t.Conn, 0), Subscribe(t.Conn, 0)
		defer sub.Close()
		defer next.Close()
		for _, s := range []*Subscription{sub, next} {
			s.OnCheck(func(time.Time, error) { checks.Add(1) })
		}
		sub.Prove(znode, time.Now())
		time.Sleep(20 * time.Second)
		for checks.Store(0); checks.Load() == 0; {
			time.Sleep(10 * time.Millisecond) // wait until shortly after a check
		}
		checks.Store(0)
		sub.StopProving()
		time.Sleep(400 * time.Millisecond)
		deadline, lapses := sub.Deadline(), sub.State().Lapses
		path := create(t)
		next.Prove(path, time.Time{})
		require.True(t, next.State().Proven)
		require.Equal(t, deadline, next.Deadline())
		time.Sleep(90 * time.Millisecond)
		require.Zero(t, checks.Load())
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, int64(1), checks.Load())
		time.Sleep(10 * time.Second)
		require.Equal(t, lapses, next.State().Lapses)

		for checks.Store(0); checks.Load() == 0; {
			time.Sleep(10 * time.Millisecond)
		}
		next.StopProving()
		time.Sleep(1100 * time.Millisecond)
		require.True(t, next.State().Proven)
		t.Server.Blackhole(zktest.BothWays)
		next.Prove(path, time.Time{})
		require.False(t, next.State().Proven)
		t.Server.Heal()
		time.Sleep(500 * time.Millisecond)
		require.True(t, next.State().Proven)
	})
}

// TestProve_IgnoresOldWrite checks that Prove does not accept an old write as a proof: the lease starts only when
// the server has acknowledged a check.
func TestProve_IgnoresOldWrite(t *testing.T) {
	runTest(t, 4*time.Second, func(t *bubble.Test) {
		sub := Subscribe(t.Conn, 0)
		defer sub.Close()
		t.Server.Blackhole(zktest.BothWays)
		sub.Prove(znode, time.Now().Add(-4*time.Second/3))
		require.Zero(t, sub.Deadline())
		t.Server.Heal()
		time.Sleep(500 * time.Millisecond)
		require.True(t, sub.State().Proven)
	})
}

// TestMonitor_ChecksSoonAfterReconnect checks that the monitor sends a check soon after a reconnect, before the
// next regular check is due.
func TestMonitor_ChecksSoonAfterReconnect(t *testing.T) {
	runTest(t, 40*time.Second, func(t *bubble.Test) {
		sub := Subscribe(t.Conn, 0)
		defer sub.Close()
		checks := make(chan time.Time, 100)
		sub.OnCheck(func(sent time.Time, _ error) { checks <- sent })
		sub.Prove(znode, time.Time{})
		time.Sleep(time.Minute)
		for len(checks) > 0 {
			<-checks
		}
		last := <-checks // without the break, the next check would follow after 5 s
		t.Server.DropConnections()
		require.Less(t, (<-checks).Sub(last), 3*time.Second)
	})
}

// TestMonitor_RequiresSecondProofAfterPause checks that a call and the timer of the monitor detect a pause of the
// process, and that one proof does not start a lease after the pause.
func TestMonitor_RequiresSecondProofAfterPause(t *testing.T) {
	const limit = 500 * time.Millisecond // an eighth of the session timeout, the longest gap that is no pause
	pause := func(t *bubble.Test, d time.Duration) {
		p := pauseMonitors.Of(t.Conn)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running = p.running.Add(-d)
	}
	runTest(t, 4*time.Second, func(t *bubble.Test) {
		sub := Subscribe(t.Conn, 0)
		defer sub.Close()
		time.Sleep(time.Minute)
		sub.State()
		require.Zero(t, copyLease(sub.m).paused)
		pause(t, limit-200*time.Millisecond)
		time.Sleep(time.Second)
		require.Zero(t, copyLease(sub.m).paused, "a pause below the limit is ignored")
		pause(t, limit+time.Millisecond)
		begin := time.Now()
		time.Sleep(time.Second)
		require.WithinDuration(t, begin, copyLease(sub.m).paused, 200*time.Millisecond)
	})
	// The process pauses before Subscribe, and the first proof follows right after it. The client has sent no pings
	// during the pause, so there is no lease before a chain of two proofs.
	runTest(t, 4*time.Second, func(t *bubble.Test) {
		require.NoError(t, checkTimeout(t.Conn, 0))
		time.Sleep(time.Minute)
		pause(t, 3*time.Second)
		sub := Subscribe(t.Conn, 0)
		defer sub.Close()
		sub.Prove(znode, time.Now())
		require.False(t, sub.State().Proven)
		require.Zero(t, sub.Deadline())
		time.Sleep(2 * time.Second)
		require.True(t, sub.State().Proven)
	})
}

// TestPauseMonitor_LastPauseReturnsEndOfPause checks that lastPause returns the time at which the process has
// resumed after a gap that is longer than the limit, and the zero time if there was no such gap.
func TestPauseMonitor_LastPauseReturnsEndOfPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pauseMonitor{running: time.Now()}
		for range 100 {
			time.Sleep(time.Second)
			require.Zero(t, p.lastPause(time.Second))
		}
		time.Sleep(time.Second + time.Nanosecond)
		paused := time.Now()
		require.Equal(t, paused, p.lastPause(time.Second))
		time.Sleep(time.Second)
		require.Equal(t, paused, p.lastPause(time.Second))
	})
}

// TestWarnings_LogShortSessionsOnce checks that the monitor logs one warning if several sessions end shortly after
// they began.
func TestWarnings_LogShortSessionsOnce(t *testing.T) {
	bubble.Run(t, func(t *bubble.Test) {
		conn := bubble.Connect(t, t.Server, time.Minute)
		var log testenv.Buffer
		sub := (&Options{Conn: conn, Log: slog.New(slog.NewTextHandler(&log, nil))}).Subscribe()
		defer sub.Close()
		reports := func() int { return countLogged(&log, "again and again") }
		for range 10 {
			t.Server.DropConnections()
			time.Sleep(5 * time.Second)
		}
		require.Zero(t, reports(), "without a watch each session lasts longer")
		_, _, _, err := conn.ExistsW("/watched")
		require.NoError(t, err)
		t.Server.DropConnections()
		time.Sleep(time.Minute)
		require.Equal(t, 1, reports())
		conn.Close()
	}, zktest.WithoutReattach(), zktest.WithoutOps(zktest.OpSetWatches))
}

// TestWarnings_LogLongOutageOnce checks that the monitor logs one warning for each outage that is longer than the
// session timeout.
func TestWarnings_LogLongOutageOnce(t *testing.T) {
	runTest(t, 4*time.Second, func(t *bubble.Test) {
		var log testenv.Buffer
		sub := (&Options{Conn: t.Conn, Log: slog.New(slog.NewTextHandler(&log, nil))}).Subscribe()
		defer sub.Close()
		reports := func() int { return countLogged(&log, "no server has continued the session") }
		t.Server.DropConnections()
		time.Sleep(10 * time.Second)
		require.Zero(t, reports(), "a short break")
		for i := range 2 {
			t.Server.Stop()
			time.Sleep(3 * time.Second)
			require.Equal(t, i, reports())
			time.Sleep(time.Hour)
			require.Equal(t, i+1, reports())
			t.Server.Restart(zktest.KeepTree)
			time.Sleep(10 * time.Second)
		}
	})
}

// TestEndOnClose_EachEventEndsGrants checks that each event that ends the connection ends all grants before Push
// returns, even while Push of an earlier such event is still ending the grants. The dialer sends the packet that
// ends the session when Push of the event Closing has returned.
func TestEndOnClose_EachEventEndsGrants(t *testing.T) {
	runTest(t, 4*time.Second, func(t *bubble.Test) {
		sub := Subscribe(t.Conn, 0)
		defer sub.Close()
		resume := make(chan struct{})
		var calls atomic.Int64
		ctx, end := context.WithCancelCause(t.Context())
		sub.EndOnClose(func(err error) {
			if calls.Add(1) == 1 {
				<-resume
			}
			end(err)
		})
		first := make(chan struct{})
		go func() {
			defer close(first)
			RecordOf(t.Conn).Push(Event{Kind: Closed})
		}()
		synctest.Wait()
		require.NoError(t, ctx.Err())
		RecordOf(t.Conn).Push(Event{Kind: Closing})
		require.ErrorIs(t, context.Cause(ctx), ErrConnClosed)
		close(resume)
		<-first
	})
}

// TestEndOnClose_CallsFunctionIfConnectionWasClosed checks that EndOnClose calls its function at once if the
// connection was closed before, even after Close of the last subscription.
func TestEndOnClose_CallsFunctionIfConnectionWasClosed(t *testing.T) {
	runTest(t, 4*time.Second, func(t *bubble.Test) {
		sub := Subscribe(t.Conn, 0)
		RecordOf(t.Conn).Push(Event{Kind: Closing})
		sub.Close()
		ctx, end := context.WithCancelCause(t.Context())
		sub.EndOnClose(end)
		require.ErrorIs(t, context.Cause(ctx), ErrConnClosed)
	})
}

// TestFindMissing_ReturnsAllMissingZnodes checks that findMissing finds every missing znode, although a transaction
// fails at the first missing znode.
func TestFindMissing_ReturnsAllMissingZnodes(t *testing.T) {
	runTest(t, 4*time.Second, func(t *bubble.Test) {
		missing, err := findMissing(t.Conn, []string{znode, "/missing-1", znode, "/missing-2", znode})
		require.NoError(t, err)
		require.Equal(t, []string{"/missing-1", "/missing-2"}, missing)
	})
}
