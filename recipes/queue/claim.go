package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
)

// attemptNode is the child of an item that the transaction of a claim creates and deletes. The Stat
// of the item contains how many children the item has had, which is the number of attempts.
const attemptNode = "attempt"

// claimItems claims the chosen items, and returns the deliveries of the items that it has claimed. It returns
// an error if this participant cannot claim any item.
func (d *dispatcher) claimItems(chosen []entry) ([]*delivery, error) {
	ids := make([]string, len(chosen)) // a unique ID for each claim
	claims := make([]txn.Transaction, len(chosen))
	early := make([]*earlyRead, len(chosen))
	ends := make([][]any, len(chosen)) // for each item that was returned with a delay, the operations that end the delay
	for i, e := range chosen {
		ids[i] = rand.Text()
		attempt := path.Join(d.q.itemPath(e.name), attemptNode)
		ends[i] = d.endDelay(e.name)
		claims[i].Ops = append(
			ends[i],
			&zk.CreateRequest{Path: d.q.claimPath(e.name), Data: []byte(ids[i]), Acl: d.q.acl, Flags: zk.FlagEphemeral},
			&zk.CreateRequest{Path: attempt, Acl: d.q.acl},
			&zk.DeleteRequest{Path: attempt, Version: -1},
		)
		if d.spread == 0 { // no claim has failed recently, so this claim will probably succeed and need the data
			early[i] = d.newEarlyRead(e.name)
			claims[i].Sending = early[i].send
		}
	}
	calls := d.q.writer.StartAll(claims)
	var claimed []*delivery
	var fatal error
	lostRaces := 0
	remove := map[string]bool{}
	for i, e := range chosen {
		o := calls[i].Outcome()
		failed := o.Failed - len(ends[i])
		switch {
		case o.Failed >= 0 && failed < 0 && (errors.Is(o.Err, zk.ErrNoNode) || errors.Is(o.Err, zk.ErrBadVersion)):
			delete(d.delayed, e.name) // another client has ended the delay
			d.claimedNames[e.name] = true
			lostRaces++
		case o.Err == nil:
			delete(d.delayed, e.name)
			remove[e.name] = true
			d.claimedItems++
			claimed = append(claimed, d.newDelivery(e, o, early[i]))
		case failed == 0 && errors.Is(o.Err, zk.ErrNodeExists):
			d.claimedNames[e.name] = true
			lostRaces++
		case failed == 1 && errors.Is(o.Err, zk.ErrNoNode):
			remove[e.name] = true
			lostRaces++
		// The servers reject the claim because of the item's name, ACL, type or children.
		case o.Failed >= 0 && failed != 0 || errors.Is(o.Err, connection.ErrTooLarge):
			d.skipItem(e.name, fmt.Errorf("the item cannot be claimed: %w", connection.Refine(nil, o.Err)))
		case errors.Is(o.Err, txn.ErrUnknown):
			d.uncertain[e.name], d.claims.stale = ids[i], true
			if errors.Is(o.Err, connection.ErrConnClosed) {
				fatal = connection.ErrConnClosed
			}
		default:
			fatal = o.Err
		}
	}
	d.removeListed(remove)
	d.lostRaces += lostRaces
	d.adjustBatch(len(claimed), lostRaces)
	return claimed, fatal
}

// newDelivery returns the delivery of an item that was claimed. Until the item is read, only the dispatcher may
// send transactions for it.
func (d *dispatcher) newDelivery(e entry, o txn.Outcome, early *earlyRead) *delivery {
	claimed := &delivery{
		entry: e, q: d.q, session: o.Session, token: o.Zxid, writing: make(chan struct{}, 1), early: early,
	}
	claimed.writing <- struct{}{}
	claimed.grant = connection.NewGrant(o.Zxid, claimed.deadline)
	d.q.addDelivery(claimed, o.Record, o.Sent)
	return claimed
}

// content is the data and the Stat of a znode.
type content struct {
	raw  []byte
	stat *zk.Stat
}

// countAttempts returns the number of deliveries that count as attempts. After each delivery that does not count,
// the data was written again, which increases the version.
func (c content) countAttempts() int {
	return max(int((c.stat.Cversion+c.stat.NumChildren)/2-c.stat.Version), 0)
}

// readContent reads a znode. If its data is unreadable (connection.IsUnreadable), the content has only the
// Stat. After other errors, the Stat is nil.
func (q *Queue) readContent(ctx context.Context, path string) (content, error) {
	raw, stat, err := connection.ReadData(ctx, q.conn, path)
	return content{raw, stat}, err
}

// earlyRead is a read of an item that is sent directly after its claim, in the same round trip. A
// server executes the requests of a session in the order in which they arrive.
type earlyRead struct {
	send    func() // sends the request, unless it was already sent
	result  chan content
	session int64 // the session of the connection before the request; set before the result is sent
}

// newEarlyRead returns a read of the item with the given name, which is not sent yet.
func (d *dispatcher) newEarlyRead(name string) *earlyRead {
	r := &earlyRead{result: make(chan content, 1)}
	r.send = sync.OnceFunc(func() {
		go func() {
			r.session = d.q.conn.SessionID()
			raw, stat, err := connection.Get(d.q.conn, d.q.itemPath(name))
			if err != nil {
				stat = nil
			}
			r.result <- content{raw, stat}
		}()
	})
	return r
}

// contentOf returns the content of the item if the read included the claim that the transaction zxid has
// created in the session. Otherwise ok is false: the read may have reached the server before the claim, or
// may have failed. A read in an earlier session is not used, because its zxids are not comparable if the
// servers have lost their data since then.
func (r *earlyRead) contentOf(session, zxid int64) (c content, ok bool) {
	if r == nil {
		return content{}, false
	}
	r.send() // the read was not sent yet if the writer has searched for the claim after a lost reply
	c = <-r.result
	return c, c.stat != nil && r.session == session && c.stat.Pzxid >= zxid
}

// isZnodeError reports whether err, the error of a read, means that this znode cannot be read. Other errors
// concern the connection, the caller or other znodes.
func isZnodeError(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, connection.ErrConnClosed)
}

// readItems concurrently reads the items that were claimed, and returns the items that can be delivered. If
// this connection cannot read the data of an item, other consumers can claim the item. The attempt counts, and
// after the last attempt the item becomes a dead letter.
func (d *dispatcher) readItems(claimed []*delivery) (ready []*delivery) {
	answers := make([]<-chan connection.Answer[content], len(claimed))
	for i, item := range claimed {
		early := item.early
		item.early = nil
		answers[i] = connection.Start(func() (content, error) {
			if c, ok := early.contentOf(item.session, item.token); ok {
				return c, nil
			}
			return d.q.readContent(context.Background(), d.q.itemPath(item.name))
		})
	}
	for i, item := range claimed {
		a := <-answers[i]
		var malformed error
		if a.Value.stat != nil {
			malformed = item.setContent(a.Value, a.Err != nil)
		}
		<-item.writing
		switch {
		case !isZnodeError(context.Background(), a.Err) && a.Err != nil:
			d.abandon(item, a.Err) // another client has deleted the item without a claim, or the connection was closed
		case a.Err != nil && item.isLastAttempt():
			d.moveToDeadLetters(item, "the data cannot be read: "+connection.Refine(nil, a.Err).Error())
		case a.Err != nil:
			d.skipItem(item.name, fmt.Errorf("the item cannot be read: %w", connection.Refine(nil, a.Err)))
			d.abandon(item, a.Err)
		case malformed != nil:
			d.moveToDeadLetters(item, malformed.Error())
		case d.q.cfg.maxAttempts > 0 && item.attempt > d.q.cfg.maxAttempts:
			item.attempt--
			d.moveToDeadLetters(item, fmt.Sprintf("%d attempts, and the last was neither acknowledged nor returned", item.attempt))
		default:
			ready = append(ready, item)
		}
	}
	return ready
}

// setContent sets the content of the item. unread means that the data could not be read. setContent returns an
// error if the data is not in the format of the layout.
func (d *delivery) setContent(c content, unread bool) (err error) {
	d.raw, d.unread, d.version, d.czxid = c.raw, unread, c.stat.Version, c.stat.Czxid
	d.ctime = c.stat.Ctime
	d.attempt = max(c.countAttempts(), 1)
	if !unread {
		d.parts, err = d.q.payloads(d.raw)
	}
	return err
}

// isLastAttempt reports whether the limit of attempts does not allow another delivery after this one.
func (d *delivery) isLastAttempt() bool {
	return d.q.cfg.maxAttempts > 0 && d.attempt >= d.q.cfg.maxAttempts
}

// moveToDeadLetters moves a claimed item that cannot be delivered to the dead letters.
func (d *dispatcher) moveToDeadLetters(item *delivery, reason string) {
	c := &completion{q: d.q, as: errAcknowledged, items: []*delivery{item}}
	c.build = func(item *delivery) ([]operation, error) { return c.buildLetter(item, reason), nil }
	if err := c.apply(); err != nil {
		if item.grant.Err() == nil { // otherwise the claim is lost, and the next consumer that claims the item moves it
			d.skipItem(item.name, fmt.Errorf("the item cannot be moved to the dead letters (%s): %w", reason, connection.Refine(nil, err)))
		}
		d.abandon(item, err)
		return
	}
	d.q.log.Warn("item moved to the dead letters", "item", item.name, "reason", reason)
	d.q.setup.Report("queue", event.Event{Kind: event.Rejected, Subject: item.name, Err: errors.New(reason)})
}

// abandon ends a delivery that no consumer has received, and deletes the claim in the background.
func (d *dispatcher) abandon(item *delivery, reason error) {
	item.grant.End(reason)
	d.q.removeDelivery(item)
	d.q.running.Go(func() { d.q.returnClaim(item) })
}

// awaitLease waits until the lease is valid. It marks the items that were not lost in the meantime as
// assigned, and returns them.
func (d *dispatcher) awaitLease(ready []*delivery) (assigned []*delivery) {
	for len(ready) > 0 {
		d.q.mu.Lock()
		state := d.sub.State() // monitorLease needs d.q.mu as well, and ends a delivery that is lost after this call
		waiting := ready[:0]
		for _, item := range ready {
			switch {
			case item.grant.Context().Err() != nil || item.session != state.Session || state.Closed:
				// The claim is lost. monitorLease ends the delivery.
			case state.Proven:
				item.assigned, item.lapses = true, state.Lapses
				item.grant.Deadline() // from this call on, the grant has a deadline
				assigned = append(assigned, item)
			default:
				waiting = append(waiting, item)
			}
		}
		ready = waiting
		d.q.mu.Unlock()
		if len(ready) == 0 {
			break
		}
		select {
		case <-d.q.leaseChanged:
		case <-d.sub.Changed():
		case <-d.q.ctx.Done():
			return assigned // shutDown deletes the claims of the other items
		}
	}
	return assigned
}
