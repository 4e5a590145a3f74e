package connection

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A proof of a chain counts from its acknowledgement.
func TestLease_ChainCountsFromAcknowledgements(t *testing.T) {
	l := &lease{timeout: timeout}
	l.add(at(0), at(timeout/8))
	l.add(at(timeout/4), at(timeout/4))
	require.Equal(t, timeout/4+timeout/3, l.deadline().Sub(start), "acknowledged after an eighth of the timeout")
	l.add(at(timeout*3/8), at(timeout*3/8))
	require.Equal(t, timeout*3/8+timeout/2, l.deadline().Sub(start))
	l.add(at(timeout), at(timeout))
	require.Equal(t, timeout+timeout/4, l.deadline().Sub(start), "a gap that begins after three eighths")
	// The second was acknowledged less than a quarter before the last was sent, so the first counts.
	l.add(at(timeout*5/4), at(timeout*3/2))
	l.add(at(timeout*3/2), at(timeout*3/2))
	require.Equal(t, timeout*3/2+timeout*3/8, l.deadline().Sub(start))
}

// model is the leader of an ensemble and the server that a client is connected to. The server
// reports the activity of sessions with its replies to pings, half a tick apart.
type model struct {
	r          *rand.Rand
	half       time.Duration // half a tick
	ping, tick time.Duration // offsets
	lag        time.Duration // the longest latency
	last       time.Duration // the arrival of the last packet
	reported   time.Duration // the last activity that was reported
	unreported []time.Duration
}

// deliver returns when a packet arrives that the client sends at the time sent. Packets arrive
// in order.
func (m *model) deliver(sent time.Duration) time.Duration {
	arrival := sent
	if m.r.IntN(2) == 0 {
		arrival += time.Duration(m.r.Int64N(int64(m.lag)))
	}
	m.last = max(arrival, m.last)
	m.unreported = append(m.unreported, m.last)
	return m.last
}

// expiry returns when the session ends if the server is partitioned right after the last packet.
func (m *model) expiry() time.Duration {
	lastPing := m.ping + (m.last-m.ping)/m.half*m.half
	for _, a := range m.unreported {
		if a <= lastPing {
			// A session is active at the time of the report.
			m.reported = max(m.reported, m.ping+(a-m.ping+m.half-1)/m.half*m.half)
		}
	}
	end := m.reported + timeout
	return ((end-m.tick)/(2*m.half)+1)*2*m.half + m.tick // rounded up to a tick
}

// The lease ends before the session for every latency of each packet, and also after a pause of
// the process, during which the client sends no pings.
func TestLease_Latency(t *testing.T) {
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
					m.deliver(x) // the client's pings
				}
				l := &lease{timeout: timeout}
				if c.pause > 0 {
					l.paused = at(base)
					m.deliver(base) // the ping that was due
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
