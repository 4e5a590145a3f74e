package queue

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// dispatcher claims items and answers requests with them. Its fields belong to its goroutine, and
// to shutDown after the goroutine has ended.
type dispatcher struct {
	q     *Queue
	sub   *connection.Subscription
	epoch uint64 // the epoch of the connection when the directories were last checked
	rand  *rand.Rand

	items  *directory
	claims *directory

	// listed are the items of the last listing, in order, without the items that this dispatcher
	// has claimed since, or that were found to be deleted.
	listed []entry
	// claimedNames are the names of claimed items: those of the last listing of the claims, and
	// items for which a claim has failed since.
	claimedNames map[string]bool
	// delayed are the markers of items that were returned with a delay, by item: those of the last listing of the
	// claims, and those that this participant has created since.
	delayed map[string]marker
	// skipped are the listed items that this dispatcher could not claim, read or move to the dead
	// letters in this session, or that the program has returned repeatedly, by name.
	skipped map[string]skippedItem
	session int64 // the session in which the items of skipped were read
	// uncertain are claims that may have been applied without the knowledge of the dispatcher: the
	// ID of the claim, by the name of the item.
	uncertain map[string]string

	listedItems   int           // how many items the last listing has returned
	claimedItems  int           // how many of them this dispatcher has claimed since
	lostRaces     int           // how many of them other clients have claimed or deleted
	listedAt      time.Time     // when the last listing was complete
	listingLasted time.Duration // how long that listing took

	batch  int // how many items are claimed at the same time
	spread int // how many additional items are considered, of which a random selection is claimed
}

const (
	// batch is minBatch in the beginning, and grows to maxBatch while no claim fails.
	minBatch, maxBatch = 8, 64
	// maxSpread is the limit of spread, which grows if claims fail.
	maxSpread = 64
)

func newDispatcher(q *Queue) *dispatcher {
	sub := q.setup.Subscribe()
	return &dispatcher{
		q: q, sub: sub, epoch: sub.State().Epoch,
		rand:         rand.New(rand.NewPCG(uint64(q.conn.SessionID()), uint64(time.Now().UnixNano()))),
		items:        &directory{path: q.path, reader: watch.NewReader(q.conn, sub, q.path, watch.Children), create: q.makeItems, check: q.setup.CheckAccess, stale: true},
		claims:       &directory{path: q.cfg.claims, reader: watch.NewReader(q.conn, sub, q.cfg.claims, watch.Children), create: q.makeClaims, check: q.setup.CheckAccess, stale: true},
		claimedNames: map[string]bool{}, delayed: map[string]marker{}, skipped: map[string]skippedItem{}, uncertain: map[string]string{},
		batch: minBatch,
	}
}

// run answers requests until the queue or the connection is closed.
func (d *dispatcher) run() {
	d.sub.EndOnClose(d.q.endOnClose)
	d.q.setup.Report("queue", event.Event{Kind: event.Opened})
	ended := recipes.ErrClosed
	defer func() { d.q.setup.Report("queue", event.Event{Kind: event.Ended, Err: ended}) }()
	for d.q.ctx.Err() == nil {
		n, _ := d.q.requestedItems()
		if n == 0 {
			select {
			case <-d.q.wake:
			case <-d.q.ctx.Done():
			}
			continue
		}
		err := d.serveRequests(min(n, d.batch))
		switch {
		case err == nil || d.q.ctx.Err() != nil:
		case errors.Is(err, connection.ErrConnClosed):
			d.setConnClosed()
			ended = recipes.ErrConnClosed
			return
		default:
			d.q.log.Warn("cannot take items", "err", err)
			d.q.failRequests(d.q.translateError(err))
		}
	}
	d.q.failRequests(recipes.ErrClosed)
}

// setConnClosed fails the current and all later requests.
func (d *dispatcher) setConnClosed() {
	err := d.q.translateError(connection.ErrConnClosed)
	d.q.mu.Lock()
	d.q.connErr = err
	d.q.mu.Unlock()
	d.q.failRequests(err)
}

// serveRequests hands out up to n items, or waits until there may be an item.
func (d *dispatcher) serveRequests(n int) error {
	chosen, due, err := d.chooseListed(n, false)
	var lastTry uint64
	if err == nil && len(chosen) == 0 {
		if _, lastTry = d.q.requestedItems(); lastTry > 0 {
			// A request that does not wait must see the items that exist when it is made.
			d.items.stale, d.claims.stale = true, true
		}
		chosen, due, err = d.chooseListed(n, true)
	}
	if err != nil {
		return err
	}
	if len(chosen) == 0 {
		d.q.failTries(lastTry)
		return d.waitForItems(due)
	}
	claimed, err := d.claimItems(chosen)
	ready := d.readItems(claimed)
	for _, unwanted := range d.q.answerRequests(d.awaitLease(ready)) {
		d.abandon(unwanted, errUnread)
	}
	return err
}

// waitForItems waits until there may be an item to claim: until a directory has changed, the next
// delayed or skipped item is due, or there is a request that does not wait. Items can be delayed by the producer
// (WithTime) or by a consumer (Later).
func (d *dispatcher) waitForItems(due time.Time) error {
	if !due.IsZero() {
		timer := time.AfterFunc(time.Until(due), d.q.wakeDispatcher)
		defer timer.Stop()
	}
	for {
		n, lastTry := d.q.requestedItems()
		isDue := !due.IsZero() && !time.Now().Before(due)
		if n == 0 || lastTry > 0 || isDue || d.q.hasReturnedItems() {
			return nil
		}
		changed, err := d.items.reader.WaitEither(d.q.ctx, d.claims.reader, d.q.wake)
		switch {
		case err != nil:
			return err
		case changed && !d.items.isStale() && !d.claims.isStale():
			// Neither watch has fired, but one of them may have been lost at a reconnect.
			d.items.stale, d.claims.stale = true, true
			return nil
		case changed:
			return nil
		}
	}
}

// chooseListed lists the directories that have changed, and chooses up to n items, in order. If
// force is not set, it lists only if that is worthwhile. due is the local time at which the next
// delayed or skipped item is due, or zero. It has a monotonic reading, so that the local wall clock can be set
// while the dispatcher waits.
func (d *dispatcher) chooseListed(n int, force bool) (chosen []entry, due time.Time, err error) {
	if err := d.refresh(force); err != nil {
		return nil, due, err
	}
	available, due, err := d.availableItems(n + d.spread)
	if len(available) > n {
		available = d.selectRandomly(available, n)
	}
	return available, due, err
}

// availableItems returns up to limit listed items that are due and not claimed, in order.
func (d *dispatcher) availableItems(limit int) (available []entry, due time.Time, err error) {
	var leader, local time.Time // the present time, if an item with a due time was found
	var retry time.Time         // when the first of the skipped items is tried again
	for i := 0; i < len(d.listed) && len(available) < limit; i++ {
		e := d.listed[i]
		delayed := d.delayed[e.name]
		if (e.due > 0 || delayed.due > 0) && local.IsZero() {
			if leader, local, err = d.q.leaderTime(d.q.ctx); err != nil {
				return nil, due, err
			}
		}
		switch {
		case e.due > 0 && time.UnixMilli(e.due).After(leader):
			due = earlier(due, local.Add(time.UnixMilli(e.due).Sub(leader)))
			// The following delayed items are due later. Continue with the items with priorities.
			i += sort.Search(len(d.listed)-i, func(k int) bool { return d.listed[i+k].priority != noPriority }) - 1
		case delayed.due > 0 && !delayed.isDue(leader):
			due = earlier(due, local.Add(time.UnixMilli(delayed.due).Sub(leader)))
		case d.claimedNames[e.name] && delayed.due == 0:
		case time.Now().Before(d.skipped[e.name].until):
			retry = earlier(retry, d.skipped[e.name].until)
		default:
			available = append(available, e)
		}
	}
	return available, earlier(due, retry), nil
}

// earlier returns the earlier of two times, of which each can be zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// skippedItem is an item that a dispatcher does not claim until a time.
type skippedItem struct {
	until    time.Time
	failures int
	reported bool
}

// skip leaves an item to other consumers for some time, because of an error that concerns only this
// item. The error is logged once.
func (d *dispatcher) skip(name string, err error) {
	s := d.skipped[name]
	if !s.reported {
		d.q.log.Warn("item is skipped", "item", name, "err", err)
	}
	s.reported = true
	d.skipped[name] = s.after(s.failures+1, time.Now())
}

// after returns the item with a time that depends on the number of failures, of which the last was at
// a time. An item whose work fails immediately must not occupy the consumer and the servers.
func (s skippedItem) after(failures int, last time.Time) skippedItem {
	s.failures = failures
	s.until = last.Add(Backoff(failures))
	return s
}

const minRetryDelay, maxRetryDelay = 100 * time.Millisecond, time.Minute

// selectRandomly returns n of the entries, in order.
func (d *dispatcher) selectRandomly(entries []entry, n int) []entry {
	selected := entries[:0]
	for i, e := range entries {
		if d.rand.IntN(len(entries)-i) < n-len(selected) {
			selected = append(selected, e)
		}
	}
	return selected
}

// removeListed removes items, which are near the beginning of the list. The rest of the list is not
// copied.
func (d *dispatcher) removeListed(names map[string]bool) {
	n := 0 // the items up to this index contain all that are removed
	for i, left := 0, len(names); i < len(d.listed) && left > 0; i++ {
		if names[d.listed[i].name] {
			n = i + 1
			left--
		}
	}
	kept := slices.DeleteFunc(slices.Clone(d.listed[:n]), func(e entry) bool { return names[e.name] })
	d.listed = d.listed[n-len(kept):]
	copy(d.listed, kept)
}

// adjustBatch adapts the choice of items to the outcome of claims. Each claim that fails costs all
// claims of the same request a round trip.
func (d *dispatcher) adjustBatch(claimed, failed int) {
	if failed > 0 {
		d.spread = min(max(2*d.spread, 1), maxSpread)
		d.batch = max(claimed, 1)
	} else {
		d.spread = max(d.spread-1, 0)
		d.batch = min(2*d.batch, maxBatch)
	}
}
