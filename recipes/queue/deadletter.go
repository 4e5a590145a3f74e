package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// DeadLetter is an item that is not delivered any more, because it has reached
// the limit of [WithMaxAttempts] or because its data is not in the format of the layout.
//
// If the consumer of the last attempt could not read the data, or could not move the item, the item is blocked:
// it remains in the queue, with a permanent claim, until the dead letter is requeued or discarded. [Queue.Len]
// counts such an item.
type DeadLetter struct {
	// ID is the name of the dead letter's znode.
	ID string
	// Item is the ID that the item had.
	Item string
	// Attempts is the number of deliveries of the item.
	Attempts int
	// Reason is the reason of the last failure, for diagnostics.
	Reason string
	// Since is when the item became a dead letter, by the clock of the ensemble.
	Since time.Time
	// Raw is the data of the item's znode.
	Raw []byte
	// Parts are the payloads in Raw, or nil if Raw is not in the format of the layout.
	Parts [][]byte
	// Err is the reason why Raw could not be read, or nil: for instance
	// [recipes.ErrTooLarge], [recipes.ErrPermission], or [recipes.ErrDeleted] if another
	// client has deleted an item that had remained in the queue.
	Err error
}

// reasonData is the data of the znode with the reason of a dead letter.
type reasonData struct {
	Item     string `json:"item"`
	Attempts int    `json:"attempts"`
	Reason   string `json:"reason"`
	// InPlace means that the item remains in the queue, and that its claim is persistent.
	InPlace bool `json:"inPlace,omitempty"`
}

const (
	reasonNode = "why"
	// maxReason is the maximum length of a stored reason in bytes. Longer reasons are truncated.
	maxReason = 1000
)

// deadLetterOps returns the operations that make an item a dead letter. If inPlace is false, they move the
// item. Otherwise the item keeps its data, and is claimed by a persistent znode that contains the path of the
// dead letter. The name of the dead letter contains the czxid of the item, because a later item can have the
// same name.
func (d *delivery) deadLetterOps(reason string, inPlace bool) []operation {
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	text, _ := json.Marshal(reasonData{d.name, d.attempt, reason, inPlace}) // cannot fail
	letter := path.Join(d.q.cfg.dead, letterName(d.name, d.czxid))
	data, item := d.raw, d.deleteItemOp()
	if inPlace {
		data = nil
		item = operation{&zk.CreateRequest{Path: d.q.claimPath(d.name), Data: []byte(letter), Acl: d.q.acl}, d, otherOperation}
	}
	return []operation{
		d.deleteClaimOp(), item,
		{&zk.CreateRequest{Path: letter, Data: data, Acl: d.q.acl}, d, letterCreation},
		{&zk.CreateRequest{Path: path.Join(letter, reasonNode), Data: text, Acl: d.q.acl}, d, otherOperation},
	}
}

// letterName returns the name of the dead letter of an item.
func letterName(item string, czxid int64) string { return fmt.Sprintf("%s-%x", item, uint64(czxid)) }

// DeadLetters returns the dead letters, in the order of their items. Dead letters that
// other clients requeue or discard during the call may be missing. A dead letter whose data
// cannot be read has an Err.
func (q *Queue) DeadLetters(ctx context.Context) ([]DeadLetter, error) {
	names, err := q.names(ctx, q.cfg.dead)
	if err != nil {
		return nil, q.wrapError("list dead letters of", err)
	}
	slices.SortFunc(names, q.compareDeadLetters)
	var letters []DeadLetter
	for _, name := range names {
		switch letter, err := q.readDeadLetter(ctx, name); {
		case err == nil:
			letters = append(letters, letter)
		case !connection.IsNoNode(ctx, err):
			return nil, q.wrapError("read dead letters of", err)
		}
	}
	return letters, nil
}

// compareDeadLetters compares two names of dead letters by the positions of their items in the queue.
func (q *Queue) compareDeadLetters(a, b string) int {
	x, xok := parseName(q.layout, itemOfDeadLetter(a))
	y, yok := parseName(q.layout, itemOfDeadLetter(b))
	if !xok || !yok {
		return strings.Compare(a, b)
	}
	return compareEntries(x, y)
}

// itemOfDeadLetter returns the name of the item that has become the dead letter with the name letter.
func itemOfDeadLetter(letter string) string {
	if i := strings.LastIndexByte(letter, '-'); i >= 0 {
		return letter[:i]
	}
	return letter
}

func (q *Queue) readDeadLetter(ctx context.Context, name string) (DeadLetter, error) {
	r, err := q.readReason(ctx, name)
	if err != nil {
		return DeadLetter{}, err
	}
	l := DeadLetter{ID: name, Item: r.Item, Attempts: r.Attempts, Reason: r.Reason}
	data, err := q.readContent(ctx, path.Join(q.cfg.dead, name))
	if data.stat != nil {
		l.Since = time.UnixMilli(data.stat.Ctime)
	}
	if err == nil && r.InPlace {
		if data, err = q.readContent(ctx, q.itemPath(r.Item)); connection.IsNoNode(ctx, err) {
			l.Err = connection.ErrDeleted
			return l, nil
		}
	}
	switch {
	case isZnodeError(ctx, err):
		l.Err = connection.Refine(nil, err)
	case err != nil:
		return DeadLetter{}, err
	default:
		l.Raw = data.raw
		l.Parts, _ = q.payloads(data.raw)
	}
	return l, nil
}

// readReason reads the reason of a dead letter. If the data of the reason is invalid or unreadable, the result
// contains the item in the name of the dead letter, and says why the reason is unknown.
func (q *Queue) readReason(ctx context.Context, letter string) (reasonData, error) {
	var r reasonData
	c, err := q.readContent(ctx, path.Join(q.cfg.dead, letter, reasonNode))
	switch {
	case err == nil:
		r, err = decodeReason(letter, c.raw)
	case !isZnodeError(ctx, err):
		return r, err
	}
	if err != nil {
		r = reasonData{Item: itemOfDeadLetter(letter), Reason: "unknown: " + connection.Refine(nil, err).Error()}
	}
	return r, nil
}

// decodeReason decodes the data of the znode with the reason of a dead letter. It rejects data that names
// another item than the name of the dead letter. Otherwise DeadLetters would read, and Discard would delete,
// any znode whose path another client has written into the data.
func decodeReason(letter string, data []byte) (r reasonData, err error) {
	if err = json.Unmarshal(data, &r); err == nil && r.Item != itemOfDeadLetter(letter) {
		err = fmt.Errorf("the data of the reason names the item %q instead of %q", r.Item, itemOfDeadLetter(letter))
	}
	return r, err
}

// payloads returns the payloads in the data of an item.
func (q *Queue) payloads(raw []byte) ([][]byte, error) {
	if q.layout == recipe.Kazoo {
		return [][]byte{raw}, nil
	}
	return decode(raw)
}

// Requeue puts a dead letter back into the queue, behind other items of the same priority
// or due time, as an item without previous attempts. It returns [recipes.ErrDeleted] if
// another client has requeued or discarded the dead letter, and [recipes.ErrUnconfirmed]
// like [Queue.Put]. If the data could not be read, Requeue changes nothing and returns the
// Err of the dead letter.
func (q *Queue) Requeue(ctx context.Context, l DeadLetter) error {
	if l.Err != nil {
		return q.wrapError("requeue a dead letter of", fmt.Errorf("the data of dead letter %s cannot be read: %w", l.ID, l.Err))
	}
	e, ok := parseName(q.layout, l.Item)
	if !ok {
		return q.wrapError("requeue a dead letter of", fmt.Errorf("%w: %q is not the name of an item", connection.ErrInvalid, l.Item))
	}
	return q.wrapError("requeue a dead letter of", q.deleteDeadLetter(ctx, l, &zk.CreateRequest{
		Path: q.itemPath(prefixOf(e)), Data: l.Raw, Acl: q.acl, Flags: zk.FlagSequence,
	}))
}

// Discard deletes a dead letter permanently. Errors are those of [Queue.Requeue].
func (q *Queue) Discard(ctx context.Context, l DeadLetter) error {
	return q.wrapError("discard a dead letter of", q.deleteDeadLetter(ctx, l))
}

// deleteDeadLetter deletes a dead letter, and applies the operations items in the same transaction.
func (q *Queue) deleteDeadLetter(ctx context.Context, l DeadLetter, items ...any) error {
	if q.ctx.Err() != nil {
		return recipes.ErrClosed
	}
	if err := q.setup.CheckAccess(ctx, q.cfg.dead); err != nil {
		return err
	}
	if err := q.checkDirs(ctx); err != nil {
		return err
	}
	dir := path.Join(q.cfg.dead, l.ID)
	deletes := []any{
		&zk.DeleteRequest{Path: path.Join(dir, reasonNode), Version: -1},
		&zk.DeleteRequest{Path: dir, Version: -1},
	}
	switch r, err := q.readReason(ctx, l.ID); {
	case connection.IsNoNode(ctx, err):
		return connection.ErrDeleted
	case err != nil:
		return err
	case r.InPlace:
		blocked, err := q.blockedItemOps(ctx, l.ID, r.Item)
		if err != nil {
			return err
		}
		deletes = append(deletes, blocked...)
	}
	o, err := q.createItems(ctx, append(deletes, items...), len(deletes))
	switch {
	case err != nil:
		return err
	case o.Failed >= 0 && o.Failed < len(deletes) && errors.Is(o.Err, zk.ErrNoNode):
		return connection.ErrDeleted
	case errors.Is(o.Err, zk.ErrNotEmpty):
		return fmt.Errorf("%s or its item has children of another client, which must be deleted first: %w", dir, o.Err)
	}
	return o.Err
}

// blockedItemOps returns the operations that delete an item that has become a dead letter in place, and its
// claim. It omits the znodes that other clients have already deleted.
func (q *Queue) blockedItemOps(ctx context.Context, letter, item string) (deletes []any, err error) {
	for path, isOfLetter := range map[string]func(*zk.Stat) bool{
		q.itemPath(item):  func(s *zk.Stat) bool { return letterName(item, s.Czxid) == letter },
		q.claimPath(item): func(s *zk.Stat) bool { return s.Czxid != 0 && s.EphemeralOwner == 0 },
	} {
		stat, err := connection.ReadStat(ctx, q.conn, path)
		if err != nil {
			return nil, err
		}
		if isOfLetter(stat) {
			deletes = append(deletes, &zk.DeleteRequest{Path: path, Version: -1})
		}
	}
	return deletes, nil
}
