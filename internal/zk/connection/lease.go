package connection

import (
	"sync"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// lease computes the time before which the ensemble cannot have expired a session. Its methods read no clock.
// docs/design.md derives the rule ("Never two leaders").
//
// A proof is a write that a quorum of servers has acknowledged. A lease lasts for a time after the client has sent
// the proof. Two proofs form a chain if the first was acknowledged at least a quarter of the session timeout before
// the client has sent the second.
type lease struct {
	timeout time.Duration
	proofs  []proof   // the proofs that determine the deadline, oldest first
	paused  time.Time // when the process resumed after the newest pause, or zero
}

// proof is an acknowledged write: when the client has sent the write, and when it has received the reply.
type proof struct{ sent, acked time.Time }

// add records a proof, and removes the proofs that do not matter for the deadline any more.
func (l *lease) add(sent, acked time.Time) {
	n, newest := len(l.proofs), proof{sent, acked}
	if n > 0 && limit.Elapsed(l.proofs[n-1].sent, sent) <= 0 {
		return // the client has sent this proof before the newest one, and has received the reply later
	}
	if n > 0 && since(l.proofs[n-1].sent, sent) < 0 {
		// The wall clock was set back. Remove the proofs, because they would prove nothing until the wall clock is
		// as late as before.
		l.clear()
		n = 0
	}
	if n > 1 && limit.Elapsed(l.proofs[n-2].sent, sent) < l.timeout/16 {
		l.proofs[n-1] = newest // keep few proofs: the one before is at most timeout/16 older than the new one
	} else {
		l.proofs = append(l.proofs, newest)
	}
	for len(l.proofs) > 1 && since(l.proofs[1].acked, sent) >= l.timeout/4 {
		l.proofs = l.proofs[1:]
	}
}

// clear removes all proofs, because they are of another session, or because no checks were sent for some time.
func (l *lease) clear() { l.proofs = nil }

// deadline returns the end of the lease, or the zero time without a lease.
func (l *lease) deadline() time.Time {
	n := len(l.proofs)
	if n == 0 {
		return time.Time{}
	}
	newest := l.proofs[n-1].sent
	if n == 1 || since(l.proofs[0].acked, newest) < l.timeout/4 {
		// Without a chain, the lease relies on the pings of the client library, which it sends every third of the
		// timeout. The servers have reported such a ping to their leader after at most a quarter of the timeout. So
		// the session lives for at least 1 - 1/3 - 1/4 = 5/12 of the timeout after the newest proof, and a lease of
		// 1/3 has a margin of 1/12. After a pause of the process there is no such lease, because the client has sent
		// no pings during the pause.
		if !l.paused.IsZero() && since(l.paused, newest) < l.timeout*7/12 {
			return time.Time{}
		}
		return newest.Add(l.timeout / 3)
	}
	gap := limit.Elapsed(l.proofs[0].sent, newest)
	return newest.Add(min(l.timeout/2, l.timeout-l.timeout/8-gap))
}

// until returns when the lease ends for a user with the given timeout: half of this timeout after the newest proof,
// or when the lease of the session ends, whichever is earlier.
func (l *lease) until(timeout time.Duration) time.Time {
	deadline := l.deadline()
	if deadline.IsZero() {
		return deadline
	}
	newest := l.proofs[len(l.proofs)-1].sent
	return newest.Add(min(timeout/2, deadline.Sub(newest)))
}

// due reports whether a user with the given timeout needs a check now. The client has sent the last check at the time
// last; the next check is due an eighth of the timeout later at the earliest. interval is the configured time from
// the acknowledgement of the newest proof to the next check. If interval exceeds a quarter of the timeout, a quarter
// applies, because a chain needs proofs that are this far apart. If the lease ends soon, a check is due regardless of
// interval; and also half of the timeout after the last check, because proofs other than checks do not show that the
// znode of the user exists.
func (l *lease) due(timeout time.Duration, last, now time.Time, interval time.Duration) bool {
	if limit.Elapsed(last, now) < timeout/8 {
		return false
	}
	if interval <= timeout/8 || l.until(timeout).Sub(now) <= timeout*3/16 || limit.Elapsed(last, now) >= timeout/2 {
		return true
	}
	return limit.Elapsed(l.proofs[len(l.proofs)-1].acked, now) >= min(interval, timeout/4)
}

// since returns the time from a to b by the monotonic or the wall clock, whichever is shorter. Callers use it for
// ages that must not be overestimated, because the wall clock can be set forward.
func since(a, b time.Time) time.Duration { return limit.Left(b, a) }

// maxPollInterval limits the time between two polls of the connection's state. The client library waits for a
// second before it connects to the same server again, so polls notice every break. For connections of package
// zkdial, the dialer reports the breaks.
const maxPollInterval = 500 * time.Millisecond

// pauseMonitor detects pauses of this process (SIGSTOP, a suspended machine) with a timer, without a goroutine. It
// starts with the first use of the connection, because a pause before a candidacy also matters, and ends when the
// connection is garbage collected.
type pauseMonitor struct {
	mu      sync.Mutex
	running time.Time // the newest time at which the process was running
	paused  time.Time // when the process resumed after the newest pause, or zero
}

var pauseMonitors = NewMap(func(conn *zk.Conn) *pauseMonitor {
	p := &pauseMonitor{running: time.Now()}
	p.poll(weak.Make(conn))
	return p
})

// poll detects a pause since the last poll, and starts a timer for the next poll.
func (p *pauseMonitor) poll(reference weak.Pointer[zk.Conn]) {
	if conn := reference.Value(); conn != nil {
		timeout := SessionTimeout(conn, 0)
		p.lastPause(timeout / 8)
		time.AfterFunc(pollInterval(timeout), func() { p.poll(reference) })
	}
}

// DetectPauses starts to detect pauses of the process, until conn is garbage collected.
func DetectPauses(conn *zk.Conn) { pauseMonitors.Of(conn) }

// pollInterval returns the time between two polls with this session timeout.
func pollInterval(timeout time.Duration) time.Duration {
	return max(min(timeout/32, maxPollInterval), time.Millisecond)
}

// lastPause returns when the process resumed after the newest pause that was longer than longest, or the zero time. The
// current call also detects pauses.
func (p *pauseMonitor) lastPause(longest time.Duration) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if limit.Elapsed(p.running, now) > longest {
		p.paused = now
	}
	p.running = now
	return p.paused
}
