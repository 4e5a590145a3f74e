package queue

import (
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// guard ends what is held when the session ends, or can no longer be proven to
// live, until the queue or the connection is closed.
func (q *Queue) guard() {
	for {
		select {
		case <-q.sub.Changed():
		case <-q.ctx.Done():
			return
		}
		tell(q.lease)
		lost, state := q.lose()
		for _, d := range lost {
			q.busy.Go(func() { q.giveBack(d) })
		}
		switch {
		case state.Closed:
			return
		case state.Missing:
			q.busy.Go(q.proveAnew)
		}
	}
}

// lose ends what is lost, and returns it.
func (q *Queue) lose() (lost []*delivery, state session.State) {
	reasons := map[*delivery]error{}
	q.mu.Lock()
	state = q.sub.State() // not before: it must be as new as what was handed out
	for d := range q.held {
		if err := d.over(state); err != nil {
			reasons[d] = err
		}
	}
	q.mu.Unlock()
	for d, reason := range reasons {
		d.end(reason)
		q.release(d)
		lost = append(lost, d)
	}
	return lost, state
}

// over says why an item is lost; nil if it is not. The caller holds mu.
func (d *delivery) over(state session.State) error {
	switch {
	case state.Closed:
		return zkerror.ErrConnClosed
	case state.Session != d.session:
		return zkerror.ErrSessionExpired
	case d.handedOut && (!state.Proven || state.Lapses != d.lapses):
		// Others may rely on its end from now on: it does not come back.
		return zkerror.ErrLeaseExpired
	}
	return nil
}

// loseAll ends everything that is held, and returns it.
func (q *Queue) loseAll(reason error) (lost []*delivery) {
	q.mu.Lock()
	for d := range q.held {
		lost = append(lost, d)
	}
	q.mu.Unlock()
	for _, d := range lost {
		d.end(reason)
		q.release(d)
	}
	return lost
}

// deadline is until when the session of the claim is proven to live; the zero time
// when that is over.
func (d *delivery) deadline() time.Time {
	state := d.q.sub.State()
	if state.Session != d.session {
		return time.Time{}
	}
	return state.Deadline
}

// proveAnew is called when the register is missing: it was renewed, or somebody
// has deleted it.
func (q *Queue) proveAnew() {
	o := q.writer.Start(txn.Transaction{}).Outcome()
	q.mu.Lock()
	defer q.mu.Unlock()
	if o.Err == nil && len(q.held) > 0 {
		q.sub.Prove(o.Record, o.Sent)
	}
}

// release takes an item from what is held; without any no lease is kept.
func (q *Queue) release(d *delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, held := q.held[d]; !held {
		return
	}
	delete(q.held, d)
	if len(q.held) == 0 {
		q.sub.Rest()
	}
}

// cameBack tells the feed of an item that it has taken off its list.
func (q *Queue) cameBack(d *delivery) {
	q.mu.Lock()
	q.returned = append(q.returned, d.entry)
	q.mu.Unlock()
	q.wake()
}
