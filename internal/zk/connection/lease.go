package connection

import (
	"sync"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// lease computes until when the ensemble cannot have expired a session. It is pure: it reads no clock.
// docs/design.md derives the rule ("Never two leaders").
//
// A proof is an acknowledged quorum write. It counts from the time at which it was sent. Two proofs form a
// chain if the first was acknowledged a quarter of the timeout before the second was sent.
type lease struct {
	timeout time.Duration
	proofs  []proof   // what the deadline follows from, oldest first
	paused  time.Time // when a pause of the process was last detected
}

// proof is an acknowledged write.
type proof struct{ sent, acked time.Time }

// add records a proof.
func (l *lease) add(sent, acked time.Time) {
	n, newest := len(l.proofs), proof{sent, acked}
	if n > 0 && limit.Elapsed(l.proofs[n-1].sent, sent) <= 0 {
		return // an older proof, acknowledged late
	}
	if n > 0 && since(l.proofs[n-1].sent, sent) < 0 {
		// The wall clock was set back: the proofs would be no evidence until it is as late as before.
		l.clear()
		n = 0
	}
	if n > 1 && limit.Elapsed(l.proofs[n-2].sent, sent) < l.timeout/16 {
		l.proofs[n-1] = newest // the one before is recent enough
	} else {
		l.proofs = append(l.proofs, newest)
	}
	for len(l.proofs) > 1 && since(l.proofs[1].acked, sent) >= l.timeout/4 {
		l.proofs = l.proofs[1:]
	}
}

// clear removes all proofs: they are of another session, or no checks were sent for some time.
func (l *lease) clear() { l.proofs = nil }

// deadline returns the end of the lease, or the zero time without a lease.
func (l *lease) deadline() time.Time {
	n := len(l.proofs)
	if n == 0 {
		return time.Time{}
	}
	newest := l.proofs[n-1].sent
	if n == 1 || since(l.proofs[0].acked, newest) < l.timeout/4 {
		// The chain is too short. The pings of the client library, a third of the timeout apart, have been
		// reported instead: 1 - 1/4 - 1/3 = 5/12 remain, so the margin is 5/12 - 1/3 = 1/12. If the process
		// was paused, so were the pings.
		if !l.paused.IsZero() && since(l.paused, newest) < l.timeout*7/12 {
			return time.Time{}
		}
		return newest.Add(l.timeout / 3)
	}
	gap := limit.Elapsed(l.proofs[0].sent, newest)
	return newest.Add(min(l.timeout/2, l.timeout-l.timeout/8-gap))
}

// until returns the end of the lease for a user with this timeout, at most that of the lease. A shorter one
// only limits the lease to the half of it, from the newest proof.
func (l *lease) until(timeout time.Duration) time.Time {
	deadline := l.deadline()
	if deadline.IsZero() {
		return deadline
	}
	newest := l.proofs[len(l.proofs)-1].sent
	return newest.Add(min(timeout/2, deadline.Sub(newest)))
}

// due reports whether a user with this timeout needs the next check, if the last one was sent at the time
// last. interval is the configured time from an acknowledgement to the next check; at most a quarter of the
// timeout is used, because a chain needs proofs that are this far apart. If the lease ends soon, the
// default interval applies, an eighth of the timeout. Other proofs do not show that the user's znode
// exists, so a check is sent after half of the timeout in any case.
func (l *lease) due(timeout time.Duration, last, now time.Time, interval time.Duration) bool {
	if limit.Elapsed(last, now) < timeout/8 {
		return false
	}
	if interval <= timeout/8 || l.until(timeout).Sub(now) <= timeout*3/16 || limit.Elapsed(last, now) >= timeout/2 {
		return true
	}
	return limit.Elapsed(l.proofs[len(l.proofs)-1].acked, now) >= min(interval, timeout/4)
}

// since returns the time from a to b by the monotonic or the wall clock, whichever is shorter. It is for ages that
// must not be overestimated: the wall clock can be set forward.
func since(a, b time.Time) time.Duration { return limit.Left(b, a) }

// maxPollInterval limits the time between two polls. The client library waits for a second before it
// connects to the same server again, so no break is missed. The breaks of connections of package zkdial are
// counted.
const maxPollInterval = 500 * time.Millisecond

// pauseMonitor detects pauses of this process (SIGSTOP, a suspended machine) with a timer, without a goroutine. It
// starts with the first use of the connection, because a pause before a candidacy matters, too, and stops when the
// connection is garbage collected.
type pauseMonitor struct {
	mu      sync.Mutex
	running time.Time // when the process was last known to run
	paused  time.Time // when a pause was last detected
}

var pauseMonitors = NewMap(func(conn *zk.Conn) *pauseMonitor {
	p := &pauseMonitor{running: time.Now()}
	p.poll(weak.Make(conn))
	return p
})

// poll detects a pause since the last call, and calls itself again.
func (p *pauseMonitor) poll(reference weak.Pointer[zk.Conn]) {
	if conn := reference.Value(); conn != nil {
		timeout := SessionTimeout(conn, 0)
		p.last(timeout / 8)
		time.AfterFunc(pollInterval(timeout), func() { p.poll(reference) })
	}
}

// DetectPauses starts to detect pauses of the process, until conn is garbage collected.
func DetectPauses(conn *zk.Conn) { pauseMonitors.Of(conn) }

// pollInterval returns the time between two polls.
func pollInterval(timeout time.Duration) time.Duration {
	return max(min(timeout/32, maxPollInterval), time.Millisecond)
}

// last returns when the process was last paused for more than longest, or the zero time.
func (p *pauseMonitor) last(longest time.Duration) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if limit.Elapsed(p.running, now) > longest {
		p.paused = now
	}
	p.running = now
	return p.paused
}
