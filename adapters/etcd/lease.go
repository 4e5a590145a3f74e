package etcd

import (
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/session"
)

// keep is an acknowledged keepalive, or grant, of the lease.
type keep struct {
	sent time.Time
	// term is that of the newest entry that the server which answered had applied before it
	// passed the keepalive on.
	term uint64
}

// lease says until when a lease is proven to live. It is pure: it knows what was sent and
// answered, and asks no clock. What makes a proof of a keepalive is told in docs/etcd.md.
type lease struct {
	ttl    time.Duration
	kept   keep // the newest that was acknowledged
	proven time.Time
}

// granted begins with a grant that was sent at a time: it went through the quorum, and is a
// proof by itself.
func (l *lease) granted(sent time.Time, ttl time.Duration, term uint64) {
	*l = lease{ttl: ttl, kept: keep{sent, term}, proven: sent}
}

// renewed notes an acknowledged keepalive. It proves nothing yet: a member that was the
// cluster's leader and does not know that another one is acknowledges too.
func (l *lease) renewed(k keep, ttl time.Duration) {
	if k.sent.After(l.kept.sent) {
		l.kept = k
	}
	l.ttl = min(l.ttl, ttl)
}

// confirmed notes the answer of a linearizable read that was sent after k was acknowledged.
// If no member has led in a later term up to that read, the leader of k's was the one that
// counts the lease, and from k on.
func (l *lease) confirmed(k keep, term uint64) {
	if term == k.term && k.sent.After(l.proven) {
		l.proven = k.sent
	}
}

// deadline is the end of the lease as its holder counts it: a quarter of the TTL before etcd
// can expire it. An eighth is for clock rates, the other for timers and the way to the user.
func (l *lease) deadline() time.Time { return l.proven.Add(l.ttl - l.ttl/4) }

// good reports whether the lease lasts for long enough to begin a leadership, so that it does
// not end at once.
func (l *lease) good(now time.Time) bool {
	return !session.Expired(l.deadline().Add(-l.ttl/4), now)
}

// over reports whether the lease has run out, by either clock.
func (l *lease) over(now time.Time) bool { return session.Expired(l.deadline(), now) }
