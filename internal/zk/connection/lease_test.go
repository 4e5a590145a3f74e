package connection

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

const timeout = 4 * time.Second

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

// leaseOf returns a lease with proofs that were sent, and acknowledged, at these times after start.
func leaseOf(sent ...time.Duration) *lease {
	l := &lease{timeout: timeout}
	for _, d := range sent {
		l.add(at(d), at(d))
	}
	return l
}

func every(step, until time.Duration) (sent []time.Duration) {
	for d := time.Duration(0); d <= until; d += step {
		sent = append(sent, d)
	}
	return sent
}

// TestLease_DeadlineFollowsProofs checks the deadline of a lease after various series of proofs. The deadline
// depends on what the servers know from the pings of the client.
func TestLease_DeadlineFollowsProofs(t *testing.T) {
	for name, c := range map[string]struct {
		sent []time.Duration
		want time.Duration
	}{
		"the first proof, with the pings of the client": {[]time.Duration{0}, timeout / 3},
		"a chain shorter than a quarter of the timeout": {every(timeout/8, timeout/8), timeout/8 + timeout/3},
		"a chain of checks":                             {every(timeout/8, 2*timeout), 2*timeout + timeout/2},
		"other writes between the checks":               {append(every(timeout/100, timeout), timeout), timeout + timeout/2},
		"a gap counts from the proof before it":         {append(every(timeout/8, timeout), 2*timeout-timeout/4), timeout + timeout - timeout/8},
		"a gap of one timeout":                          {append(every(timeout/8, timeout), 2*timeout), timeout + timeout - timeout/8},
		"a new chain after a gap":                       {append(every(timeout/8, timeout), 3*timeout, 3*timeout+timeout/4), 3*timeout + timeout/4 + timeout/2},
		"an older proof that is acknowledged late":      {[]time.Duration{timeout, timeout / 2}, timeout + timeout/3},
		"the same proof twice":                          {[]time.Duration{timeout, timeout}, timeout + timeout/3},
		"many proofs":                                   {every(time.Millisecond, timeout), timeout + timeout/2},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, leaseOf(c.sent...).deadline().Sub(start))
		})
	}
	require.True(t, (&lease{timeout: timeout}).deadline().IsZero(), "a lease without a proof has a deadline")
}

// TestLease_RequiresChainAfterPause checks that one proof does not start a lease after a pause of the process,
// because the client has sent no pings during the pause.
func TestLease_RequiresChainAfterPause(t *testing.T) {
	l := leaseOf(0)
	l.paused = at(-timeout / 2)
	require.True(t, l.deadline().IsZero())
	l.add(at(timeout/8), at(timeout/8))
	require.Equal(t, timeout/8+timeout/3, l.deadline().Sub(start), "a pause that was long ago")
	l.paused = at(0)
	require.True(t, l.deadline().IsZero())
	l.add(at(timeout/4), at(timeout/4))
	require.Equal(t, timeout/4+timeout/2, l.deadline().Sub(start), "a chain after the pause")
}

// TestLease_KeepsFewProofs checks that the number of proofs that a lease keeps in memory is limited.
func TestLease_KeepsFewProofs(t *testing.T) {
	l := leaseOf(every(time.Millisecond, 10*timeout)...)
	require.LessOrEqual(t, len(l.proofs), 8)
}

// TestLease_IsNotExtendedByStepOfWallClock checks that a step of the wall clock does not extend a lease, and that
// proofs after the step renew the lease.
func TestLease_IsNotExtendedByStepOfWallClock(t *testing.T) {
	for name, c := range map[string]struct{ before, step, pause time.Duration }{
		"forward, in a short chain":       {before: 0, step: timeout / 4},
		"far forward, in a short chain":   {before: timeout / 8, step: time.Hour},
		"forward, after a pause":          {before: 0, step: timeout, pause: timeout / 8},
		"back, in a chain":                {before: timeout, step: -timeout / 16},
		"far back, in a chain":            {before: timeout, step: -time.Hour},
		"far back, after a pause":         {before: timeout, step: -time.Hour, pause: timeout / 8},
		"back by more than the last gap":  {before: timeout, step: -timeout / 4},
		"forward by less than an eighth":  {before: timeout, step: timeout / 16},
		"far forward, with a valid chain": {before: timeout, step: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			unstepped, l := &lease{timeout: timeout}, &lease{timeout: timeout}
			add := func(d time.Duration) time.Duration {
				actual, shown := begin.Add(d), begin.Add(d)
				if d > c.before {
					shown = withWall(actual, c.step)
				}
				unstepped.add(actual, actual)
				l.add(shown, shown)
				// Compute the deadline by the clock that was not set: the lease ends when either clock has passed
				// the deadline.
				return l.deadline().Sub(begin)
			}
			if c.pause > 0 {
				l.paused = begin.Add(c.before - c.pause)
				unstepped.paused = l.paused
			}
			for d := time.Duration(0); d < c.before+2*timeout; d += timeout / 8 {
				end := add(d)
				require.LessOrEqual(t, end, max(unstepped.deadline().Sub(begin), 0), "after %v", d)
				require.LessOrEqual(t, len(l.proofs), 8)
			}
			require.Equal(t, unstepped.deadline().Sub(begin), l.deadline().Sub(begin), "the lease is not renewed")
		})
	}
}

// withWall returns t with its wall clock reading changed by d. It uses unsafe, because package time cannot create a
// time whose clock readings differ.
func withWall(t time.Time, d time.Duration) time.Time {
	u := t.Add(d)
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&u))
	fields.ext -= int64(d)
	return u
}

// TestLease_CountsChainFromAcknowledgements checks that a proof extends a chain from the time of its
// acknowledgement, not from the time at which the client has sent the proof.
func TestLease_CountsChainFromAcknowledgements(t *testing.T) {
	l := &lease{timeout: timeout}
	l.add(at(0), at(timeout/8))
	l.add(at(timeout/4), at(timeout/4))
	require.Equal(t, timeout/4+timeout/3, l.deadline().Sub(start), "acknowledged after an eighth of the timeout")
	l.add(at(timeout*3/8), at(timeout*3/8))
	require.Equal(t, timeout*3/8+timeout/2, l.deadline().Sub(start))
	l.add(at(timeout), at(timeout))
	require.Equal(t, timeout+timeout/4, l.deadline().Sub(start), "a gap that begins after three eighths")
	// The second proof was acknowledged less than a quarter of the timeout before the last proof was sent, so the
	// chain begins with the first proof.
	l.add(at(timeout*5/4), at(timeout*3/2))
	l.add(at(timeout*3/2), at(timeout*3/2))
	require.Equal(t, timeout*3/2+timeout*3/8, l.deadline().Sub(start))
}

// model simulates the leader of an ensemble and the server of a client. The server reports the activity of sessions
// in its replies to the leader's pings, which are half a tick apart.
type model struct {
	r          *rand.Rand
	half       time.Duration // half a tick of the server
	ping, tick time.Duration // the times of the first ping and of the first tick
	lag        time.Duration // the longest latency
	last       time.Duration // the arrival of the newest packet
	reported   time.Duration // the last activity that the server has reported to the leader
	unreported []time.Duration
}

// deliver returns the time at which a packet arrives that the client sends at the time sent. Packets arrive in the
// order in which they were sent.
func (m *model) deliver(sent time.Duration) time.Duration {
	arrival := sent
	if m.r.IntN(2) == 0 {
		arrival += time.Duration(m.r.Int64N(int64(m.lag)))
	}
	m.last = max(arrival, m.last)
	m.unreported = append(m.unreported, m.last)
	return m.last
}

// expiry returns when the leader expires the session if the server of the client is cut off from the leader right
// after the last packet has arrived.
func (m *model) expiry() time.Duration {
	lastPing := m.ping + (m.last-m.ping)/m.half*m.half
	for _, a := range m.unreported {
		if a <= lastPing {
			// The leader takes the time of the report for the time of the activity, although the activity was
			// earlier.
			m.reported = max(m.reported, m.ping+(a-m.ping+m.half-1)/m.half*m.half)
		}
	}
	end := m.reported + timeout
	return ((end-m.tick)/(2*m.half)+1)*2*m.half + m.tick // round up to a tick of the leader
}

// TestLease_EndsBeforeSessionAtAnyLatency checks that the lease ends before the session with random latencies of
// each packet, also after a pause of the process, during which the client sends no pings.
func TestLease_EndsBeforeSessionAtAnyLatency(t *testing.T) {
	for name, c := range map[string]struct {
		tick, lag, pause time.Duration
	}{
		"steady, up to 20 ms":           {timeout / 2, 20 * time.Millisecond, 0},
		"small ticks, up to 20 ms":      {timeout / 10, 20 * time.Millisecond, 0},
		"paused for 0.66 T, up to 5 ms": {timeout / 2, 5 * time.Millisecond, timeout * 66 / 100},
		"paused for 0.66 T, up to T/8":  {timeout / 2, timeout / 8, timeout * 66 / 100},
		"paused for 0.9 T, up to T/8":   {timeout / 2, timeout / 8, timeout * 9 / 10},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			leases := 0
			for range 50_000 {
				base := 10 * timeout
				m := &model{
					r: r, half: c.tick / 2, lag: c.lag,
					ping: time.Duration(r.Int64N(int64(c.tick / 2))), tick: time.Duration(r.Int64N(int64(c.tick))),
				}
				for x := base - 3*timeout + time.Duration(r.Int64N(int64(timeout/3))); x <= base-c.pause; x += timeout / 3 {
					m.deliver(x) // a ping of the client
				}
				l := &lease{timeout: timeout}
				if c.pause > 0 {
					l.paused = at(base)
					m.deliver(base) // the ping that was due during the pause
				}
				sent, next := base, base+timeout/3
				for n := 1 + r.IntN(6); n > 0; n-- {
					for ; next <= sent; next += timeout / 3 {
						m.deliver(next)
					}
					acked := m.deliver(sent) + time.Millisecond
					l.add(at(sent), at(acked))
					sent = max(sent+timeout/8+time.Millisecond/2, acked)
				}
				deadline := l.deadline()
				if expiry := m.expiry(); !deadline.IsZero() && m.last < expiry {
					leases++
					require.LessOrEqual(t, deadline.Sub(start), expiry)
				}
			}
			require.NotZero(t, leases)
		})
	}
}

// simulateMinuteOfChecks simulates a minute of checks that the server acknowledges after a round trip, for a user
// with the configured timeout stated, and requires that the lease does not end in this minute. It returns the
// number of checks, and the shortest time for which the lease was still valid at an acknowledgement.
func simulateMinuteOfChecks(t *testing.T, stated, interval, roundTrip time.Duration) (n int, left time.Duration) {
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

// TestLease_ContinuesWithChecksAtInterval checks that the client sends checks no more often than the check interval
// requires, and that the lease does not end while the server answers the checks in time.
func TestLease_ContinuesWithChecksAtInterval(t *testing.T) {
	byDefault, _ := simulateMinuteOfChecks(t, timeout, 0, 2*time.Millisecond)
	require.InDelta(t, 120, byDefault, 5)
	slowest, left := simulateMinuteOfChecks(t, timeout, timeout/4, 2*time.Millisecond)
	require.InDelta(t, 56, slowest, 4)
	require.Greater(t, left, timeout/8)
	longer, _ := simulateMinuteOfChecks(t, timeout, timeout, 2*time.Millisecond)
	require.Equal(t, slowest, longer, "a quarter of the timeout is the limit")
	between, _ := simulateMinuteOfChecks(t, timeout, timeout/6, 2*time.Millisecond)
	require.Less(t, between, byDefault)
	require.Greater(t, between, slowest)
	// Try round trips of up to a seventh of the timeout: with longer ones, even a client with the default interval
	// loses its first lease, which lasts for a third of the timeout.
	for _, stated := range []time.Duration{timeout, timeout * 7 / 8, timeout * 2 / 3, timeout / 4, timeout / 40} {
		for roundTrip := time.Millisecond; roundTrip < stated/7; roundTrip += stated / 64 {
			simulateMinuteOfChecks(t, stated, 0, roundTrip)
			simulateMinuteOfChecks(t, stated, stated/4, roundTrip)
			simulateMinuteOfChecks(t, stated, stated/6, roundTrip)
		}
	}
}
