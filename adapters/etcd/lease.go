package etcd

import (
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// keepalive is a keepalive that a server has acknowledged, or the grant of the lease.
type keepalive struct {
	sent time.Time
	// term is the term of the newest entry of the Raft log that the answering server had applied before
	// it forwarded the keepalive to the cluster's leader.
	term uint64
}

// lease computes until when etcd certainly keeps a lease. It reads no clock. docs/etcd.md describes
// when a keepalive is confirmed, and why.
type lease struct {
	ttl          time.Duration
	acknowledged keepalive // acknowledged is the newest keepalive that a server has acknowledged.
	confirmed    time.Time // confirmed is when the newest confirmed keepalive was sent.
}

// newLease returns a lease whose grant was requested at the time sent. A quorum of the members has committed
// the grant, so it counts as confirmed.
func newLease(sent time.Time, ttl time.Duration, term uint64) lease {
	return lease{ttl: ttl, acknowledged: keepalive{sent, term}, confirmed: sent}
}

// acknowledge stores an acknowledged keepalive. It does not extend the lease: a former leader of the
// cluster that has not learned of its successor acknowledges keepalives as well.
func (l *lease) acknowledge(k keepalive, ttl time.Duration) {
	if k.sent.After(l.acknowledged.sent) {
		l.acknowledged = k
	}
	l.ttl = min(l.ttl, ttl)
}

// confirm evaluates the response to a linearizable read that was sent after k was acknowledged. If the read has
// the same term as k, no member has led the cluster in a later term before the read, so the leader that has
// acknowledged k is the one that expires leases, and it has extended this one after k was sent.
func (l *lease) confirm(k keepalive, term uint64) {
	if term == k.term && k.sent.After(l.confirmed) {
		l.confirmed = k.sent
	}
}

// deadline returns when the candidate must stop, a quarter of the TTL before etcd can expire the
// lease. One eighth of the TTL is for different rates of the clocks, the other eighth is for
// timers and for the delay until the user is notified.
func (l *lease) deadline() time.Time { return l.confirmed.Add(l.ttl - l.ttl/4) }

// isSufficient reports whether the lease is valid for long enough to start a leadership, so that the
// leadership does not end immediately.
func (l *lease) isSufficient(now time.Time) bool {
	return !limit.Expired(l.deadline().Add(-l.ttl/4), now)
}

// hasExpired reports whether the deadline has passed, by the monotonic or by the wall clock.
func (l *lease) hasExpired(now time.Time) bool { return limit.Expired(l.deadline(), now) }
