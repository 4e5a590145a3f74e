package session

import "time"

// lease says until when a session is proven to be alive at the ensemble. It is
// pure: it knows the times of requests and acknowledgements, and asks no clock.
//
// A proof is a quorum write that the ensemble acknowledged; it counts from the
// time at which it was sent. That alone is not enough. The server that carried
// the write reports the session's activity to the ensemble's leader only with
// its answer to the leader's next ping, up to half a tick later; cut off
// before that, the leader expires the session by the reports that it has. By its
// default settings a server grants no timeout below two ticks, so half a tick
// is at most a quarter of the timeout. Two proofs make a chain: a proof that was
// acknowledged a quarter of the timeout before the next one was sent has been
// reported by then, because the next one shows that the server was still connected,
// and the session lives for one timeout from when the first one was sent. The time of
// the acknowledgement counts, because the server may have received the first proof
// at any time before it. An eighth of the timeout is reserved for clock rates and for
// the time between the end of a lease and the moment at which all users know of it.
type lease struct {
	timeout time.Duration
	proofs  []proof   // oldest first
	paused  time.Time // when the process was last found to have been stopped
}

// proof is an acknowledged write.
type proof struct{ sent, acked time.Time }

// proved records a proof.
func (l *lease) proved(sent, acked time.Time) {
	n, is := len(l.proofs), proof{sent, acked}
	if n > 0 && elapsed(l.proofs[n-1].sent, sent) <= 0 {
		return // an older proof, acknowledged late
	}
	if n > 1 && elapsed(l.proofs[n-2].sent, sent) < l.timeout/16 {
		l.proofs[n-1] = is // so many proofs are not needed
	} else {
		l.proofs = append(l.proofs, is)
	}
	for len(l.proofs) > 1 && elapsed(l.proofs[1].acked, sent) >= l.timeout/4 {
		l.proofs = l.proofs[1:]
	}
}

// clear forgets all proofs: of another session, or of a chain that was not kept
// up, so that the time between would pass for a gap in it.
func (l *lease) clear() { l.proofs = nil }

// deadline is the end of the lease; the zero time when nothing is proven.
func (l *lease) deadline() time.Time {
	n := len(l.proofs)
	if n == 0 {
		return time.Time{}
	}
	newest := l.proofs[n-1].sent
	if n == 1 || elapsed(l.proofs[0].acked, newest) < l.timeout/4 {
		// The chain is too young to tell what the ensemble's leader knows.
		// The client library's own pings, a third of the timeout apart,
		// stand in for it: 1 - 1/4 - 1/3 leaves 5/12. Unless they were
		// stopped as well.
		if !l.paused.IsZero() && elapsed(l.paused, newest) < l.timeout*7/12 {
			return time.Time{}
		}
		return newest.Add(l.timeout / 3)
	}
	gap := elapsed(l.proofs[0].sent, newest)
	return newest.Add(min(l.timeout/2, l.timeout-l.timeout/8-gap))
}

// due reports whether the next check should be sent, if the last one was sent at that time.
// interval is the time from an acknowledgement to the next check that the users accept, of
// which at most a quarter of the timeout is used: the chain counts proofs that were
// acknowledged a quarter of the timeout earlier. If the lease ends soon, because the chain is
// young or an acknowledgement took long, checks are sent as by default.
func (l *lease) due(last, now time.Time, interval time.Duration) bool {
	if elapsed(last, now) < l.timeout/8 {
		return false
	}
	if interval <= l.timeout/8 || l.deadline().Sub(now) <= l.timeout*3/16 {
		return true
	}
	return elapsed(l.proofs[len(l.proofs)-1].acked, now) >= min(interval, l.timeout/4)
}

// elapsed is the time from a to b: the larger of the monotonic and the wall
// clock's, because the monotonic one stands still while a machine is suspended
// (golang/go#24595) and the wall clock can be set back.
func elapsed(a, b time.Time) time.Duration {
	return max(b.Sub(a), b.Round(0).Sub(a.Round(0)))
}

// Expired reports whether deadline has passed by either clock.
func Expired(deadline, now time.Time) bool { return elapsed(deadline, now) >= 0 }
