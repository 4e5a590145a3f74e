package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// State is the state of an item in the queue.
type State int

// The states of an item in the queue.
const (
	Waiting State = iota // Waiting means that no consumer has the item, and that consumers can take it.
	Delayed              // Delayed means that the item is not due yet, by the local clock.
	Claimed              // Claimed means that a consumer has the item.
	Blocked              // Blocked means that the item is a [DeadLetter] that has remained in the queue.
)

func (s State) String() string {
	if names := []string{"waiting", "delayed", "claimed", "blocked"}; s >= 0 && int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Info describes an item.
type Info struct {
	ID    string
	State State
	// Attempts is the number of deliveries, including the current one.
	Attempts int
	// Priority is the priority given to Put, or 0 by default.
	Priority int
	// Since is when the item was put, by the clock of the ensemble.
	Since time.Time
	// Due is the time of [WithTime], or until when [Later] delays the item, by the clock of the ensemble, or zero.
	Due time.Time
	// Parts are the payloads, or nil if Err is set.
	Parts [][]byte
	// Err is the reason why the data could not be read or decoded, or nil.
	Err error
}

// Get returns the present state of an item, given its ID. It returns [recipes.ErrDeleted] if the item is not
// in the queue: it was completed, became a [DeadLetter], or has never existed.
func (q *Queue) Get(ctx context.Context, id string) (Info, error) {
	i, err := q.itemInfo(ctx, id)
	return i, q.wrapError("read an item of", err)
}

func (q *Queue) itemInfo(ctx context.Context, id string) (Info, error) {
	e, err := q.parseID(id)
	if err != nil {
		return Info{}, err
	}
	claim, err := q.readClaim(ctx, id)
	if err != nil {
		return Info{}, err
	}
	i, err := q.readInfo(ctx, e, claim)
	if connection.IsNoNode(ctx, err) {
		err = connection.ErrDeleted
	}
	return i, err
}

// parseID parses the ID of an item, and rejects other strings.
func (q *Queue) parseID(id string) (entry, error) {
	e, ok := parseName(q.layout, id)
	if !ok {
		return e, fmt.Errorf("%w: %q is not the ID of an item", connection.ErrInvalid, id)
	}
	return e, nil
}

// readInfo reads an item. claim is the content of its claim, or empty if no claim exists.
func (q *Queue) readInfo(ctx context.Context, e entry, claim content) (Info, error) {
	i := Info{ID: e.name}
	if e.priority != noPriority {
		i.Priority = int(e.priority)
	}
	if e.due > 0 {
		i.Due = time.UnixMilli(e.due)
	}
	m, delayed := delayOfClaim(e.name, claim)
	if delayed {
		i.Due = time.UnixMilli(m.due)
	}
	switch {
	case claim.stat != nil && claim.stat.EphemeralOwner == 0 && !delayed:
		i.State = Blocked
	case claim.stat != nil && !delayed:
		i.State = Claimed
	case i.Due.After(time.Now()):
		i.State = Delayed
	}
	c, err := q.readContent(ctx, q.itemPath(e.name))
	if c.stat != nil {
		i.Since, i.Attempts = time.UnixMilli(c.stat.Ctime), c.countAttempts()
	}
	switch {
	case isZnodeError(ctx, err):
		i.Err = connection.Refine(nil, err)
	case err != nil:
		return i, err
	default:
		i.Parts, i.Err = q.payloads(c.raw)
	}
	return i, nil
}

// List returns the first n items, in the order in which consumers begin them; claimed and delayed items are
// included. It lists the names of all items, and reads n of them. Items that are completed during the call may
// be missing, and List reads each State at a different moment.
func (q *Queue) List(ctx context.Context, n int) ([]Info, error) {
	if n < 1 {
		return nil, q.wrapError("list items of", fmt.Errorf("%w: List(%d): must be at least 1", connection.ErrInvalid, n))
	}
	infos, err := q.list(ctx, n)
	return infos, q.wrapError("list items of", err)
}

func (q *Queue) list(ctx context.Context, n int) ([]Info, error) {
	names, err := q.names(ctx, q.path)
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, name := range names {
		if e, ok := parseName(q.layout, name); ok {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, compareEntries)
	answers := make([]<-chan connection.Answer[Info], min(n, len(entries)))
	for i := range answers {
		answers[i] = connection.Start(func() (Info, error) { return q.itemInfo(ctx, entries[i].name) })
	}
	var infos []Info
	for _, answer := range answers {
		a := <-answer
		switch {
		case a.Err == nil:
			infos = append(infos, a.Value)
		case !errors.Is(a.Err, connection.ErrDeleted):
			err = a.Err
		}
	}
	if err != nil {
		return nil, err
	}
	return infos, nil
}

// Wait blocks until the item with an ID has left the queue. It returns nil if the item was acknowledged or
// withdrawn, which ZooKeeper does not distinguish, and [ErrDead] if it became a [DeadLetter]. An item that does
// not exist has left the queue. If the context is done first, Wait returns its cause. Other errors:
// [recipes.ErrInvalid], [recipes.ErrClosed], [recipes.ErrConnClosed].
func (q *Queue) Wait(ctx context.Context, id string) error {
	return q.wrapError("wait for an item of", q.waitFor(ctx, id))
}

func (q *Queue) waitFor(ctx context.Context, id string) error {
	if _, err := q.parseID(id); err != nil {
		return err
	}
	if err := q.startCall(); err != nil {
		return err
	}
	defer q.running.Done()
	ctx, cancel := q.untilClosed(ctx)
	defer cancel()
	if err := q.setup.Sync(ctx, q.path); err != nil { // another client may have put the item just now
		return err
	}
	sub := q.setup.Subscribe()
	defer sub.Close()
	item := watch.NewReader(q.conn, sub, q.itemPath(id), watch.Data)
	claim := watch.NewReader(q.conn, sub, q.claimPath(id), watch.DataOrCreation)
	for czxid := int64(0); ; {
		found, err := item.Read(ctx)
		switch {
		case errors.Is(err, zk.ErrNoNode), found.Stat != nil && czxid != 0 && found.Stat.Czxid != czxid:
			return q.outcomeOf(ctx, id, czxid)
		case found.Stat == nil: // the read has failed; with a Stat, only the data is unreadable
			return err
		}
		czxid = found.Stat.Czxid
		claimed, err := claim.Read(ctx)
		if err != nil {
			return err
		}
		if _, delayed := delayOfClaim(id, content{claimed.Data, claimed.Stat}); claimed.Stat != nil && claimed.Stat.EphemeralOwner == 0 && !delayed {
			return ErrDead
		}
		if _, err := item.WaitEither(ctx, claim, nil); err != nil {
			return err
		}
	}
}

// outcomeOf returns ErrDead if the item, which has left the queue, became a dead letter, and nil otherwise.
// czxid is the czxid of the item, or 0 if it is not known.
func (q *Queue) outcomeOf(ctx context.Context, id string, czxid int64) error {
	letters, err := q.names(ctx, q.cfg.dead)
	if err != nil {
		return err
	}
	for _, letter := range letters {
		if itemOfDeadLetter(letter) == id && (czxid == 0 || letter == letterName(id, czxid)) {
			return ErrDead
		}
	}
	return nil
}

// Withdraw deletes an item that no consumer has claimed. It returns [ErrClaimed] if a consumer has the item,
// and [recipes.ErrDeleted] if the item is not in the queue. [recipes.ErrUnconfirmed] has the same meaning as
// for [Queue.Put].
func (q *Queue) Withdraw(ctx context.Context, id string) error {
	return q.wrapError("withdraw an item of", q.withdraw(ctx, id))
}

func (q *Queue) withdraw(ctx context.Context, id string) error {
	if q.ctx.Err() != nil {
		return recipes.ErrClosed
	}
	if _, err := q.parseID(id); err != nil {
		return err
	}
	if err := q.checkDirs(ctx); err != nil {
		return err
	}
	claim := q.claimPath(id)
	var end []any    // the operations that end the delay of the item
	var last marker  // the marker that end deletes; empty if end is empty
	missing := false // true if another client has deleted the marker
	for {
		// The create of a claim fails if the item is claimed. Then the whole transaction fails.
		o, err := q.runTransaction(ctx, txn.Transaction{Ops: append(
			end,
			&zk.CreateRequest{Path: claim, Acl: q.acl, Flags: zk.FlagEphemeral},
			&zk.DeleteRequest{Path: q.itemPath(id), Version: -1},
			&zk.DeleteRequest{Path: claim, Version: -1},
		)})
		failed := o.Failed - len(end)
		switch {
		case err != nil || o.Err == nil:
			return err
		case failed < 0 && o.Failed >= 0 && (errors.Is(o.Err, zk.ErrNoNode) || errors.Is(o.Err, zk.ErrBadVersion)):
			// A consumer has ended the delay, or another client has deleted the marker.
			missing = o.Failed == 0 && len(end) == 2
			end = nil
		case failed == 0 && errors.Is(o.Err, zk.ErrNodeExists):
			c, err := q.readClaim(ctx, id)
			if err != nil {
				return err
			}
			m, delayed := delayOfClaim(id, c)
			switch {
			case delayed:
				end = q.endDelayOps(id, m)
				if missing && m == last {
					end = end[1:]
				}
				last = m
			case c.stat != nil:
				return ErrClaimed
			}
		case failed == 0 && errors.Is(o.Err, zk.ErrNoNode):
			if err := q.makeClaims(ctx); err != nil {
				return err
			}
		case failed == 1 && errors.Is(o.Err, zk.ErrNoNode):
			return connection.ErrDeleted
		default:
			return o.Err
		}
	}
}
