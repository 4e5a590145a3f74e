package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// directory is a directory that the dispatcher lists and watches.
type directory struct {
	path   string
	reader *watch.Reader
	create func(context.Context) error                  // creates the directory
	check  func(ctx context.Context, path string) error // checks who may change the directory
	stale  bool                                         // whether the directory may have changed since it was listed
}

// isStale reports whether the directory may have changed since it was listed.
func (d *directory) isStale() bool {
	d.stale = d.stale || d.reader.Watch().Fired()
	return d.stale
}

// list lists the directory. If the directory does not exist, list creates it, because a missing directory
// cannot be watched for new children.
func (d *directory) list(ctx context.Context) ([]string, error) {
	for {
		found, err := d.reader.Read(ctx)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			if err := d.create(ctx); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		default:
			if err := d.check(ctx, d.path); err != nil {
				return nil, err
			}
			d.stale = false
			return found.Children, nil
		}
	}
}

// refresh lists the directories that have changed. If force is not set, it lists only if isWorthListing
// returns true.
func (d *dispatcher) refresh(force bool) error {
	state := d.sub.State()
	if state.Closed {
		return connection.ErrConnClosed
	}
	if state.Epoch != d.epoch {
		// The client library sets its watches again after a reconnect, but does not retry if this fails, and
		// can lose changes in the meantime. So list again.
		d.epoch = state.Epoch
		d.items.stale, d.claims.stale = true, true
	}
	if state.Session != d.session {
		// The servers may have lost their data in the meantime, and other items may have the same names.
		d.session = state.Session
		clear(d.skipped)
	}
	d.listReturned()
	itemsStale, claimsStale := d.items.isStale(), d.claims.isStale()
	if !itemsStale && !claimsStale || !force && !d.isWorthListing() {
		return nil
	}
	began := time.Now()
	var items, claims <-chan connection.Answer[[]string]
	if itemsStale {
		items = connection.Start(func() ([]string, error) { return d.items.list(d.q.ctx) })
	}
	if claimsStale {
		claims = connection.Start(func() ([]string, error) { return d.claims.list(d.q.ctx) })
	}
	var failed error
	if claims != nil {
		if a := <-claims; a.Err != nil {
			failed = a.Err
		} else {
			d.setClaims(a.Value)
		}
	}
	if items != nil {
		if a := <-items; a.Err != nil {
			failed = a.Err
		} else {
			d.setItems(a.Value)
		}
	}
	d.listedAt = time.Now()
	d.listingLasted = d.listedAt.Sub(began)
	return failed
}

// isWorthListing reports whether a directory that has changed is listed again before all items of the last
// listing were claimed. If each claim were followed by a listing, n items would cost n² names. So a listing is
// used until an eighth of its items was claimed, or until another listing costs little compared with the time
// that has passed.
func (d *dispatcher) isWorthListing() bool {
	return len(d.listed) == 0 || d.claimedItems >= max(d.listedItems/8, 16) || d.lostRaces > d.listedItems/256 ||
		time.Since(d.listedAt) > max(minListingAge, listingShare*d.listingLasted)
}

const (
	// listingShare limits the time that is spent on listings to one twentieth of the total time.
	listingShare = 20
	// minListingAge is the shortest time for which a listing is used, even if it was fast.
	minListingAge = time.Second
)

// listReturned adds the items whose claims this participant has deleted to the list again. If such an item
// has become a dead letter, the dispatcher learns it when it claims the item.
func (d *dispatcher) listReturned() {
	for _, r := range d.q.takeReturnedItems() {
		if i, found := slices.BinarySearchFunc(d.listed, r.entry, compareEntries); !found {
			d.listed = slices.Insert(d.listed, i, r.entry)
		}
		delete(d.claimedNames, r.name)
		delete(d.delayed, r.name)
		if r.marker.due > 0 {
			d.delayed[r.name], d.claimedNames[r.name] = r.marker, true // the persistent claim of a delayed item remains
		}
		if r.failures > 1 { // after the first failure, the item is delivered again immediately
			d.skipped[r.name] = d.skipped[r.name].afterFailure(r.failures-1, r.at)
		}
	}
}

// setClaims replaces the names of claimed items by the names in a listing of the claims.
func (d *dispatcher) setClaims(names []string) {
	clear(d.claimedNames)
	clear(d.delayed)
	for _, name := range names {
		if m, item, ok := parseMarker(name); ok {
			if m.due > d.delayed[item].due {
				d.delayed[item] = m
			}
			continue
		}
		if id, uncertain := d.uncertain[name]; uncertain {
			d.deleteUncertainClaim(name, id)
		}
		d.claimedNames[name] = true
	}
	clear(d.uncertain)
}

// deleteUncertainClaim deletes a claim that this dispatcher may have created without knowing it: the reply
// was lost, and another client has deleted the record that would show the outcome. The data of the claim is
// compared with id, the ID that this dispatcher has sent.
func (d *dispatcher) deleteUncertainClaim(name, id string) {
	c, err := d.q.readContent(context.Background(), d.q.claimPath(name))
	if err != nil || string(c.raw) != id {
		return
	}
	d.q.writer.Start(txn.Transaction{
		Ops:     []any{&zk.DeleteRequest{Path: d.q.claimPath(name), Version: -1}},
		Session: c.stat.EphemeralOwner,
	}).Outcome()
}

// setItems replaces the listed items by the items in a listing of the directory. It ignores names that are not
// names of items.
func (d *dispatcher) setItems(names []string) {
	d.listed = d.listed[:0]
	skipped := map[string]skippedItem{}
	for _, name := range names {
		e, ok := parseName(d.q.layout, name)
		if !ok {
			continue
		}
		d.listed = append(d.listed, e)
		if s, found := d.skipped[name]; found {
			skipped[name] = s
		}
	}
	slices.SortFunc(d.listed, compareEntries)
	d.skipped = skipped
	d.listedItems, d.claimedItems, d.lostRaces = len(d.listed), 0, 0
	d.deleteOrphanedMarkers()
	d.q.setup.Report("queue", event.Event{Kind: event.Listed, Count: d.countOthers()})
}

// countOthers returns the number of listed items that this participant has not claimed.
func (d *dispatcher) countOthers() int {
	d.q.mu.Lock()
	defer d.q.mu.Unlock()
	n := len(d.listed)
	for own := range d.q.deliveries {
		if _, found := slices.BinarySearchFunc(d.listed, own.entry, compareEntries); found {
			n--
		}
	}
	return n
}
