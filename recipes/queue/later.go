package queue

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
)

// Later returns an error for the handler of an item, or for [Item.Return], with cause as its reason: no consumer
// receives the item before d has passed, measured by the clock of the ensemble's leader and stored in ZooKeeper
// together with the return. So the delay also applies to other processes and after a restart. If the attempt was
// the last that [WithMaxAttempts] allows, the item becomes a dead letter.
func Later(d time.Duration, cause error) error { return &postponement{cause, d} }

type postponement struct {
	cause error
	d     time.Duration
}

func (p *postponement) Error() string {
	if p.cause == nil {
		return fmt.Sprintf("returned for %v", p.d)
	}
	return p.cause.Error()
}

func (p *postponement) Unwrap() error { return p.cause }

func isPostponement(err error) bool {
	var p *postponement
	return errors.As(err, &p)
}

// delayOf returns the delay that Later has set in cause, or 0 if cause contains no delay.
func delayOf(cause error) time.Duration {
	var p *postponement
	if errors.As(cause, &p) {
		return p.d
	}
	return 0
}

// A delayed return replaces the claim of the item by a persistent znode of the same name. So no consumer can
// claim the item, even if it has listed the item before. The data of this znode is the name of a marker, which
// is created in the same transaction. A listing of the claims contains the marker, which shows that the item is
// delayed, and until when. The data is written twice, so that the version of the znode differs from the version
// of a consumer's claim.

const (
	markerPrefix = "later-"
	// delayedVersion is the version of the persistent claim of a delayed item. Claims of consumers, and of
	// dead letters in place, have version 0.
	delayedVersion = 1
)

// marker is the znode that shows until when an item is delayed. Its zero value means that the item is not
// delayed.
type marker struct {
	name string
	due  int64 // the time in milliseconds since 1970, by the clock of the ensemble's leader
}

// newMarker returns the marker of an item that is delayed until due.
func newMarker(item string, due time.Time) marker {
	m := marker{due: dueTime(due)}
	m.name = fmt.Sprintf("%s%X-%s", markerPrefix, m.due, item)
	return m
}

// parseMarker parses the name of a marker. ok is false if name is not the name of a marker.
func parseMarker(name string) (m marker, item string, ok bool) {
	rest, ok := strings.CutPrefix(name, markerPrefix)
	due, item, found := strings.Cut(rest, "-")
	n, err := strconv.ParseInt(due, 16, 64)
	return marker{name, n}, item, ok && found && err == nil && n > 0
}

// isDue reports whether the delay is over at the time leader, by the clock of the ensemble's leader.
func (m marker) isDue(leader time.Time) bool { return !time.UnixMilli(m.due).After(leader) }

// delayOps returns the operations that delay the item, which follow the deletion of its claim in the
// transaction.
func (d *delivery) delayOps(m marker) []operation {
	claim := d.q.claimPath(d.name)
	return []operation{
		{&zk.CreateRequest{Path: claim, Acl: d.q.acl}, d, otherOperation},
		{&zk.SetDataRequest{Path: claim, Data: []byte(m.name), Version: 0}, d, otherOperation},
		{&zk.CreateRequest{Path: path.Join(d.q.cfg.claims, m.name), Acl: d.q.acl}, d, otherOperation},
	}
}

// endDelay returns the operations that a claim needs to end the delay of the item, or none if the item is not
// delayed. If another client has deleted the persistent claim, the operations delete only the marker.
func (d *dispatcher) endDelay(item string) []any {
	m, delayed := d.delayed[item]
	if !delayed {
		return nil
	}
	ops := d.q.endDelayOps(item, m)
	if !d.claimedNames[item] {
		ops = ops[:1]
	}
	return ops
}

// endDelayOps returns the operations that end the delay of an item. The operations fail if another client has
// ended the delay.
func (q *Queue) endDelayOps(item string, m marker) []any {
	return []any{
		&zk.DeleteRequest{Path: path.Join(q.cfg.claims, m.name), Version: -1},
		&zk.DeleteRequest{Path: q.claimPath(item), Version: delayedVersion},
	}
}

// delayOfClaim returns the marker of a delayed item. c is the content of the claim of the item.
func delayOfClaim(item string, c content) (m marker, delayed bool) {
	if c.stat == nil || c.stat.EphemeralOwner != 0 || c.stat.Version != delayedVersion {
		return m, false
	}
	m, of, ok := parseMarker(string(c.raw))
	return m, ok && of == item
}

// readClaim reads the claim of an item. If no claim exists, the content is empty.
func (q *Queue) readClaim(ctx context.Context, item string) (content, error) {
	c, err := q.readContent(ctx, q.claimPath(item))
	if errors.Is(err, zk.ErrNoNode) || c.stat != nil {
		err = nil
	}
	return c, err
}

// deleteOrphanedMarkers deletes the markers and the persistent claims of items that another client has deleted,
// once the markers are due.
func (d *dispatcher) deleteOrphanedMarkers() {
	if len(d.delayed) == 0 {
		return
	}
	leader, _, known := d.q.writer.LeaderTime()
	if !known {
		return
	}
	exists := make(map[string]bool, len(d.listed))
	for _, e := range d.listed {
		exists[e.name] = true
	}
	for item, m := range d.delayed {
		if !exists[item] && m.isDue(leader) {
			ops := d.endDelay(item)
			delete(d.delayed, item)
			d.q.writer.Start(txn.Transaction{Ops: ops})
		}
	}
}

// markerAfter returns the marker with which the item is returned now, so that it is due after delay.
func (d *delivery) markerAfter(delay time.Duration) (marker, error) {
	leader, _, err := d.q.leaderTime(d.q.ctx)
	if err != nil {
		return marker{}, connection.Refine(d.q.conn, err)
	}
	return newMarker(d.name, leader.Add(delay)), nil
}
