package queue

import (
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
)

// monitorLease ends deliveries when the session or its lease has expired, until the queue or the
// connection is closed.
func (q *Queue) monitorLease() {
	for {
		select {
		case <-q.sub.Changed():
		case <-q.ctx.Done():
			return
		}
		connection.Signal(q.leaseChanged)
		q.mu.Lock()
		// q.mu is held, so that the state is not older than a delivery that a consumer has received.
		state := q.sub.State()
		lost := q.findDeliveries(func(d *delivery) error { return d.lossReason(state) })
		q.mu.Unlock()
		for _, d := range q.endDeliveries(lost) {
			q.running.Go(func() { q.returnClaim(d) })
		}
		switch {
		case state.Closed:
			return
		case state.Missing:
			q.running.Go(q.proveWithNewRecord)
		}
	}
}

// endOnClose ends the grants of all deliveries before the owner of the connection ends the session.
// monitorLease removes the deliveries.
func (q *Queue) endOnClose(reason error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for d := range q.deliveries {
		d.grant.End(reason)
	}
}

// lossReason returns the reason why the item is lost, or nil if it is not lost. state is the present state of
// the session. The caller holds mu.
func (d *delivery) lossReason(state connection.State) error {
	switch {
	case state.Closed:
		return connection.ErrConnClosed
	case state.Session != d.session:
		return connection.ErrSessionExpired
	case d.assigned && (!state.Proven || state.Lapses != d.lapses):
		// Other code may rely on the loss now, so the item remains lost even if the lease is valid again.
		return connection.ErrLeaseExpired
	}
	return nil
}

// findDeliveries returns the deliveries for which reason returns an error, with these errors. The caller
// holds mu.
func (q *Queue) findDeliveries(reason func(*delivery) error) map[*delivery]error {
	found := map[*delivery]error{}
	for d := range q.deliveries {
		if err := reason(d); err != nil {
			found[d] = err
		}
	}
	return found
}

// endDeliveries ends deliveries, each for its reason, and returns them. Their claims remain.
func (q *Queue) endDeliveries(reasons map[*delivery]error) (ended []*delivery) {
	for d, reason := range reasons {
		d.grant.End(reason)
		q.removeDelivery(d)
		ended = append(ended, d)
	}
	return ended
}

// endAllDeliveries ends all deliveries for a reason, and returns them.
func (q *Queue) endAllDeliveries(reason error) []*delivery {
	q.mu.Lock()
	all := q.findDeliveries(func(*delivery) error { return reason })
	q.mu.Unlock()
	return q.endDeliveries(all)
}

// deadline returns the time until which the session of the claim certainly lives, or the zero time if the
// session has ended.
func (d *delivery) deadline() time.Time {
	state := d.q.sub.State()
	if state.Session != d.session {
		return time.Time{}
	}
	return state.Deadline
}

// proveWithNewRecord continues the checks of the session with a new record, because the writer has replaced the
// previous record, or another client has deleted that record.
func (q *Queue) proveWithNewRecord() {
	o := q.writer.Start(txn.Transaction{}).Outcome()
	q.mu.Lock()
	defer q.mu.Unlock()
	if o.Err == nil && len(q.deliveries) > 0 {
		q.sub.Prove(o.Record, o.Sent)
	}
}

// addDelivery adds a delivery. The first delivery starts the checks of the session, with the writer's znode at
// the path record. The writer has sent the claim at the time sent.
func (q *Queue) addDelivery(d *delivery, record string, sent time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.deliveries) == 0 {
		q.sub.Prove(record, sent)
	}
	q.deliveries[d] = struct{}{}
}

// removeDelivery removes a delivery, unless it was removed before. The removal of the last delivery stops the
// checks of the session.
func (q *Queue) removeDelivery(d *delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, found := q.deliveries[d]; !found {
		return
	}
	delete(q.deliveries, d)
	if len(q.deliveries) == 0 {
		q.sub.StopProving()
	}
}

// returnedItem is an item whose claim this participant has deleted.
type returnedItem struct {
	entry
	at       time.Time
	failures int // the number of deliveries if the program has returned the item; 0 otherwise
	marker   marker
}

// addReturnedItem tells the dispatcher that the claim of an item was deleted, so that it lists the item again.
// m is the marker of the item if the item was returned with a delay.
func (q *Queue) addReturnedItem(d *delivery, m marker) {
	r := returnedItem{entry: d.entry, at: time.Now(), marker: m}
	if d.completed == errReturned && m.due == 0 {
		r.failures = d.attempt
	}
	q.mu.Lock()
	q.returned = append(q.returned, r)
	q.mu.Unlock()
	q.wakeDispatcher()
}

// takeReturnedItems returns the items that were added since the last call.
func (q *Queue) takeReturnedItems() []returnedItem {
	q.mu.Lock()
	defer q.mu.Unlock()
	returned := q.returned
	q.returned = nil
	return returned
}

func (q *Queue) hasReturnedItems() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.returned) > 0
}
