package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/event"
)

// maxPendingReads is the number of reads of the queue that may be in flight at a time. It is greater than one so
// that a read that a server does not answer does not delay the next one.
const maxPendingReads = 4

// entry is an entry in the queue: a key with its lease. It belongs to the goroutine of ElectLeader, its owner.
// Other goroutines send the requests and return one result each, so that the owner can end the leadership
// in time although a request takes long. One of them sends all keepalives.
type entry struct {
	election *Election
	key      candidateKey
	lease    lease
	deadline atomic.Pointer[time.Time] // deadline is a copy of the lease's deadline, for readers on any goroutine.

	ctx        context.Context // ctx limits requests and watches.
	requests   sync.WaitGroup
	due        chan time.Duration   // due receives the time limit of each keepalive. It is closed when no more are due.
	keepalives chan keepaliveResult // keepalives receives one result for each limit that due has received.
	views      chan viewResult

	pendingKeepalive        bool
	pendingViews            int
	nextKeepalive, nextView time.Time

	keyWatch         *watch    // keyWatch observes whether the key still belongs to the candidate.
	predecessorWatch *watch    // predecessorWatch observes the deletion of the predecessor's key.
	nodeWatch        *watch    // nodeWatch observes the value of the election node, with requests to resign.
	keepaliveFailed  bool      // keepaliveFailed reports whether the newest keepalive has failed.
	unreadSince      time.Time // unreadSince is when the first of the current failures to read the queue occurred, or zero.
	published        bool      // published reports whether a status of this entry was published.
	head             bool      // head reports whether a view has shown that the candidate is the head of the queue.
	predecessor      string    // predecessor is the key of the predecessor in the last status.
	next             bool      // next is the field Next of the last status.
	leaseUnknown     bool      // leaseUnknown reports that, since the last view, a server did not know the lease.
}

// keepaliveResult is the result of a keepalive.
type keepaliveResult struct {
	keepalive keepalive
	ttl       time.Duration
	took      time.Duration
	err       error
}

// viewResult is the result of reading the queue after keepalive was acknowledged.
type viewResult struct {
	keepalive keepalive
	known     position // known is the value of Election.known when the read was sent.
	view      *view
	err       error
}

// stayInQueue joins the queue and stays in it until the entry is lost or ctx is done. It returns the reason. sole
// reports that no other candidate can lead by the queue as this candidate knew it, because this candidate was its
// head and the lease had not expired.
func (e *Election) stayInQueue(ctx context.Context) (sole bool, err error) {
	n, err := e.joinQueue(ctx)
	if err != nil {
		e.waitForRevocations(err)
		return false, err
	}
	entryCtx, cancel := context.WithCancel(ctx)
	n.start(entryCtx)
	err = n.followQueue()
	sole = n.head && !n.lease.hasExpired(time.Now())
	e.candidacy.Revoke(err) // end the leadership before the lease is revoked
	cancel()
	close(n.due)
	n.keyWatch.close()
	n.predecessorWatch.close()
	n.nodeWatch.close()
	n.requests.Wait()
	e.revokeLease(n.key, errors.Is(err, errDetached))
	e.waitForRevocations(err)
	return sole, err
}

// start starts the goroutine that sends keepalives. The goroutine ends when ctx is done and due is
// closed.
func (n *entry) start(ctx context.Context) {
	n.ctx = ctx
	n.due, n.keepalives, n.views = make(chan time.Duration, 1), make(chan keepaliveResult, 1), make(chan viewResult, maxPendingReads)
	stream := &keepaliveStream{ctx: ctx, client: n.election.client, lease: n.key.lease}
	n.requests.Go(func() {
		defer stream.close()
		for limit := range n.due {
			n.keepalives <- stream.send(limit)
		}
	})
}

// followQueue keeps the lease alive and follows the queue until the entry is lost or ctx is done.
func (n *entry) followQueue() error {
	candidacy := n.election.candidacy
	n.keyWatch = watchLoss(n.ctx, n.election.client, n.key, n.key.revision+1)
	now := time.Now()
	n.nextView, n.nextKeepalive = now, now.Add(n.lease.ttl/8)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		if n.lease.hasExpired(now) && n.isLeader() {
			candidacy.Suspend(leaderelection.ErrLeaseExpired)
			n.election.outage.recordSuspension()
		}
		n.sendDueRequests(now)
		timer.Reset(n.nextAction().Sub(now))
		select {
		case <-n.ctx.Done():
			return context.Cause(n.ctx)
		case <-n.election.client.Ctx().Done():
			return errClosed
		case r := <-n.keepalives:
			n.pendingKeepalive = false
			n.handleKeepalive(r)
		case r := <-n.views:
			n.pendingViews--
			if err := n.handleView(r); err != nil {
				return err
			}
		case revision := <-n.keyWatch.firedRevisions():
			n.keyWatch.close()
			n.keyWatch = nil
			if revision != 0 {
				n.revokeLeadership()
			}
			n.handleChange(revision)
		case revision := <-n.predecessorWatch.firedRevisions():
			if revision != 0 {
				candidacy.Vacated()
			}
			n.predecessorWatch.close()
			n.predecessorWatch = nil
			n.handleChange(revision)
		case revision := <-n.nodeWatch.firedRevisions():
			n.nodeWatch.close()
			n.nodeWatch = nil
			n.handleChange(revision)
		case <-n.election.listening:
			n.nextView = time.Now()
		case <-timer.C:
		}
	}
}

// keepaliveInterval returns the time between two keepalives.
func (n *entry) keepaliveInterval() time.Duration {
	if n.head {
		return n.lease.ttl / 8
	}
	return n.lease.ttl / 3
}

// retryTime returns the time of the next attempt after a failure.
func (n *entry) retryTime() time.Time {
	return time.Now().Add(min(n.lease.ttl/16, 500*time.Millisecond))
}

// sendDueRequests sends a keepalive and starts a read of the queue, if they are due. Each request has a time
// limit, so that another request is sent if its response is lost. The goroutines that wait for responses must not
// access n.lease.
func (n *entry) sendDueRequests(now time.Time) {
	client, limit := n.election.client, min(n.lease.ttl/2, requestLimit)
	if !n.pendingKeepalive && !n.nextKeepalive.After(now) {
		n.pendingKeepalive = true
		n.nextKeepalive = now.Add(n.keepaliveInterval())
		n.due <- min(n.lease.ttl/4, requestLimit) // The limit leaves time for a second attempt.
	}
	if n.pendingViews < maxPendingReads && !n.nextView.After(now) {
		n.pendingViews++
		n.nextView = now.Add(min(n.lease.ttl/4, requestLimit/2))
		last, known := n.lease.acknowledged, n.election.known
		n.requests.Go(func() {
			ctx, cancel := context.WithTimeout(n.ctx, limit)
			defer cancel()
			v, err := readView(ctx, client, n.election.node, n.key)
			if err != nil {
				err = explain(n.ctx, client, err)
			}
			n.views <- viewResult{last, known, v, err}
		})
	}
}

// nextAction returns the time at which followQueue must act even if it receives no result before.
func (n *entry) nextAction() time.Time {
	next := time.Now().Add(time.Minute)
	for _, action := range []struct {
		at      time.Time
		planned bool
	}{
		{n.nextKeepalive, !n.pendingKeepalive},
		{n.nextView, n.pendingViews < maxPendingReads},
		{n.lease.deadline(), n.isLeader()},
	} {
		if action.planned && action.at.Before(next) {
			next = action.at
		}
	}
	return next
}

// handleChange schedules a read of the queue after a watch has fired: at once if it reports a change at
// revision, and after a pause if revision is 0, which means that the watch has failed.
func (n *entry) handleChange(revision int64) {
	if revision == 0 {
		n.nextView = n.retryTime()
		return
	}
	n.election.known.revision = max(n.election.known.revision, revision)
	n.nextView = time.Now()
}

// handleKeepalive handles the result of a keepalive. A successful one is stored in the lease, and the leader reads
// the queue to confirm it. After a failure, another keepalive is scheduled; if etcd does not know the lease, a read is.
func (n *entry) handleKeepalive(r keepaliveResult) {
	event := event.Event{Kind: event.Checked, Err: r.err}
	n.keepaliveFailed = r.err != nil
	switch {
	case r.err != nil:
		n.election.outage.recordFailure(time.Now(), r.err)
		n.nextKeepalive = earlierTime(n.nextKeepalive, n.retryTime())
	case r.ttl <= 0:
		// Do not give up the lease yet: a server that lags behind does not know a new lease. The read shows
		// whether the lease still exists.
		event.Err = errExpired
		n.leaseUnknown = true
		n.nextView = time.Now()
	default:
		event.Duration = r.took
		n.lease.acknowledge(r.keepalive, r.ttl)
		if n.head {
			n.nextView = time.Now()
		}
	}
	n.election.candidacy.Report(event)
}

// handleView handles the result of reading the queue: it confirms the lease, publishes changes of the role, and
// starts the watches that are needed. It returns an error if the entry is lost.
func (n *entry) handleView(r viewResult) error {
	if r.err != nil {
		return n.handleFailedView(r.err)
	}
	v, known := r.view, &n.election.known
	if v.lostSince(r.known) {
		n.election.log.Warn(errDataLost.Error(), "id", n.key.name, "revision", v.revision, "known", r.known.revision)
		return errDataLost
	}
	if v.revision < known.revision {
		n.nextView = earlierTime(n.nextView, n.retryTime())
		return nil // This view is older than what is known. A newer one will follow.
	}
	if v.nodeRev != known.nodeRev {
		return leaderelection.ErrElectionOver
	}
	*known, n.unreadSince = v.position, time.Time{}
	if !n.keepaliveFailed {
		n.election.outage.recordSuccess()
	}
	if !n.key.isKey(v.key) {
		return n.findLoss(v)
	}
	if n.ctx.Err() != nil {
		return context.Cause(n.ctx)
	}
	n.leaseUnknown = false
	n.lease.confirm(r.keepalive, v.term)
	n.storeDeadline()
	if n.keyWatch == nil {
		n.keyWatch = watchLoss(n.ctx, n.election.client, n.key, v.revision+1)
	}
	n.checkResignRequests(v)
	if v.predecessor == "" {
		n.nextView = time.Now().Add(n.lease.ttl / 4) // a regular read; others follow keepalives
		n.lead(v)
		return nil
	}
	// Read the queue periodically as well, because a watch can stop without an error.
	interval := n.lease.ttl
	if v.detached { // Read more often: when the predecessor's lease ends, its key remains.
		interval /= 4
	}
	n.nextView = time.Now().Add(interval)
	if n.predecessorWatch == nil || n.predecessorWatch.key != v.predecessor {
		n.predecessorWatch.close()
		n.predecessorWatch = watchDeletion(n.ctx, n.election.client, v.predecessor, v.revision+1)
	}
	if !n.published || n.predecessor != v.predecessor || n.next != v.next {
		n.published, n.predecessor, n.next = true, v.predecessor, v.next
		n.election.candidacy.Publish(leaderelection.Status{NowFollowing: v.predecessor, Next: v.next})
	}
	return nil
}

// handleFailedView schedules another read of the queue. If reads have failed for too long, it returns an error,
// and the entry is given up: a candidate that keeps its lease, but cannot read the queue, would block the others.
func (n *entry) handleFailedView(err error) error {
	if n.ctx.Err() != nil {
		return context.Cause(n.ctx)
	}
	now, next := time.Now(), n.retryTime()
	if rejected := permanentCause(err); rejected != nil {
		err, next = rejected, now.Add(max(n.lease.ttl/16, rejectedPause))
	}
	n.nextView = earlierTime(n.nextView, next)
	if n.unreadSince.IsZero() {
		n.unreadSince = now
	}
	if n.lease.acknowledged.sent.Sub(n.unreadSince) > n.lease.ttl {
		return fmt.Errorf("%w: the queue could not be read for a TTL: %w", errExpired, err)
	}
	n.election.outage.recordFailure(now, err)
	n.election.candidacy.Report(event.Event{Kind: event.Checked, Err: err})
	return nil
}

// lead starts a leadership, or resumes a suspended one, if the lease is confirmed for long enough. The
// candidate must be the head of the queue.
func (n *entry) lead(v *view) {
	if !n.head {
		n.head = true
		n.predecessorWatch.close()
		n.predecessorWatch = nil
		n.nextKeepalive = time.Now()
	}
	if v.term != n.lease.acknowledged.term {
		// The keepalive was not confirmed, because the cluster has elected another leader since. Send another keepalive.
		n.nextKeepalive = earlierTime(n.nextKeepalive, n.retryTime())
	}
	if !n.isLeader() && n.lease.isSufficient(time.Now()) {
		n.published = true
		n.election.candidacy.Lead(n.key.revision, n.loadDeadline)
	}
}

func (n *entry) isLeader() bool { return n.election.candidacy.Leadership() != nil }

// revokeLeadership ends the leadership, if there is one, because the key is lost.
func (n *entry) revokeLeadership() {
	if n.election.candidacy.Revoke(errDeleted) {
		n.election.candidacy.Publish(leaderelection.Status{Role: leaderelection.Suspended})
	}
}

// findLoss returns the reason why v.key is not the candidate's key any more: the lease has expired, or
// another client has deleted the key or detached it from the lease.
func (n *entry) findLoss(v *view) error {
	n.revokeLeadership()
	if v.key != nil && v.key.CreateRevision == n.key.revision {
		return errDetached
	}
	end, reason := n.lease.confirmed.Add(n.lease.ttl), errExpired
	if !limit.Expired(end, time.Now()) {
		reason = errEndedEarly
	}
	if n.leaseUnknown {
		return reason
	}
	ctx, cancel := context.WithDeadlineCause(n.ctx, end, errExpired)
	defer cancel()
	err := n.election.retry(ctx, func(ctx context.Context) error {
		exists, err := leaseExists(ctx, n.election.client, n.key.lease)
		if err == nil && !exists {
			return &permanentError{reason}
		}
		return err
	})
	if err == nil {
		return errDeleted
	}
	return err
}

// storeDeadline stores the lease's deadline for other goroutines.
func (n *entry) storeDeadline() {
	d := n.lease.deadline()
	n.deadline.Store(&d)
}

// loadDeadline returns the deadline of the leadership.
func (n *entry) loadDeadline() time.Time { return *n.deadline.Load() }

func earlierTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
