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

// dispatcher claims items and answers requests with them. Only its goroutine uses its fields, and shutDown
// after that goroutine has ended.
type dispatcher struct {
	q     *Queue
	sub   *connection.Subscription
	epoch uint64 // the epoch of the connection at the last call of refresh
	rand  *rand.Rand

	items  *directory
	claims *directory

	// listed contains the items of the last listing, in order. Items that this dispatcher has claimed since,
	// or found to be deleted, are removed.
	listed []entry
	// claimedNames contains the names of items that are claimed: the names in the last listing of the claims,
	// and the names of items that this dispatcher has failed to claim since.
	claimedNames map[string]bool
	// delayed contains the markers of items that were returned with a delay, by the name of the item: the
	// markers in the last listing of the claims, and the markers that this participant has created since.
	delayed map[string]marker
	// skipped contains, by name, the listed items that this dispatcher does not claim for some time: it could
	// not claim, read or move them to the dead letters in this session, or the program has returned them
	// repeatedly.
	skipped map[string]skippedItem
	session int64 // the session in which the items of skipped were read
	// uncertain contains claims that may exist although the dispatcher does not know it: the ID of the claim,
	// by the name of the item.
	uncertain map[string]string

	listedItems   int           // number of items of the last listing
	claimedItems  int           // number of listed items that this dispatcher has claimed since
	lostRaces     int           // number of listed items that other clients have claimed or deleted
	listedAt      time.Time     // when the last listing was complete
	listingLasted time.Duration // duration of the last listing

	batch  int // number of items that are claimed together
	spread int // number of additional items from which the items to be claimed are selected at random
}

const (
	// batch begins as minBatch, and grows to maxBatch while no claim fails.
	minBatch, maxBatch = 8, 64
	// maxSpread is the maximum of spread, which grows when claims fail.
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

// setConnClosed records that the connection was closed, and fails the current and all later requests.
func (d *dispatcher) setConnClosed() {
	err := d.q.translateError(connection.ErrConnClosed)
	d.q.mu.Lock()
	d.q.connErr = err
	d.q.mu.Unlock()
	d.q.failRequests(err)
}

// serveRequests claims up to n items and answers requests with them. If no item is available, it waits until an
// item may be available.
func (d *dispatcher) serveRequests(n int) error {
	chosen, due, err := d.chooseListed(n, false)
	var lastTry uint64
	if err == nil && len(chosen) == 0 {
		if _, lastTry = d.q.requestedItems(); lastTry > 0 {
			// A call of TryTake must see the items that exist at the time of the call, so list again.
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

// waitForItems waits until an item may be available: a directory has changed, a delayed or skipped item is
// due, or TryTake was called. due is the time at which the next delayed or skipped item is due. Items are
// delayed by WithTime or by Later.
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
			// No watch has fired, but one may have been lost at a reconnect. List again.
			d.items.stale, d.claims.stale = true, true
			return nil
		case changed:
			return nil
		}
	}
}

// chooseListed lists the directories that have changed, and chooses up to n items, in order. If force is not
// set, chooseListed lists only if isWorthListing returns true. due is the local time at which the next delayed
// or skipped item is due, or zero. due has a monotonic reading, so that the local wall clock can be set while
// the dispatcher waits.
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

// availableItems returns the first items of the list that are due and not claimed, at most limit. due is the
// time at which the next item is due.
func (d *dispatcher) availableItems(limit int) (available []entry, due time.Time, err error) {
	var leader, local time.Time // the present time by both clocks, once an item with a due time was found
	var retry time.Time         // the time at which the first of the skipped items may be claimed
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
			due = earlierTime(due, local.Add(time.UnixMilli(e.due).Sub(leader)))
			// This item and the delayed items that follow are not due yet. Continue with the items that have a
			// priority, which come last.
			i += sort.Search(len(d.listed)-i, func(k int) bool { return d.listed[i+k].priority != noPriority }) - 1
		case delayed.due > 0 && !delayed.isDue(leader):
			due = earlierTime(due, local.Add(time.UnixMilli(delayed.due).Sub(leader)))
		case d.claimedNames[e.name] && delayed.due == 0:
		case time.Now().Before(d.skipped[e.name].until):
			retry = earlierTime(retry, d.skipped[e.name].until)
		default:
			available = append(available, e)
		}
	}
	return available, earlierTime(due, retry), nil
}

// earlierTime returns the earlier of two times. A zero time means none.
func earlierTime(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// skippedItem is an item that a dispatcher does not claim before the time until.
type skippedItem struct {
	until    time.Time
	failures int  // the number of failures, which determines the field until
	reported bool // the reason was logged
}

// skipItem makes the dispatcher leave an item to other consumers for some time, because of err, which concerns
// only this item. It logs err once for each item.
func (d *dispatcher) skipItem(name string, err error) {
	s := d.skipped[name]
	if !s.reported {
		d.q.log.Warn("item is skipped", "item", name, "err", err)
	}
	s.reported = true
	d.skipped[name] = s.afterFailure(s.failures+1, time.Now())
}

// afterFailure returns s after another failure at the time last. The time until the next claim grows with the number
// of failures. Otherwise an item that fails immediately would occupy the consumer and the servers.
func (s skippedItem) afterFailure(failures int, last time.Time) skippedItem {
	s.failures = failures
	s.until = last.Add(Backoff(failures))
	return s
}

const minRetryDelay, maxRetryDelay = 100 * time.Millisecond, time.Minute

// selectRandomly returns n random entries, in their order.
func (d *dispatcher) selectRandomly(entries []entry, n int) []entry {
	selected := entries[:0]
	for i, e := range entries {
		if d.rand.IntN(len(entries)-i) < n-len(selected) {
			selected = append(selected, e)
		}
	}
	return selected
}

// removeListed removes the items with these names from the list. Such items are near the beginning of the list, so
// removeListed copies only the items before the last of them, and not the whole list.
func (d *dispatcher) removeListed(names map[string]bool) {
	n := 0 // the items before index n include all that are removed
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

// adjustBatch changes batch and spread after claims. If one claim of a request fails, the other claims of the
// request take another round trip.
func (d *dispatcher) adjustBatch(claimed, failed int) {
	if failed > 0 {
		d.spread = min(max(2*d.spread, 1), maxSpread)
		d.batch = max(claimed, 1)
	} else {
		d.spread = max(d.spread-1, 0)
		d.batch = min(2*d.batch, maxBatch)
	}
}
