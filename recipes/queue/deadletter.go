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

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// DeadLetter is an item that is not delivered any more, because it has reached
// Config.MaxAttempts or because its data is not in the format of the layout.
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
}

// reasonData is the data of the znode with the reason of a dead letter.
type reasonData struct {
	Item     string `json:"item"`
	Attempts int    `json:"attempts"`
	Reason   string `json:"reason"`
}

const (
	reasonNode = "why"
	// maxReason is the maximum length of a reason. Longer reasons are truncated.
	maxReason = 1000
)

// deadLetterOps returns the operations that move an item to the dead letters. The name of the dead
// letter contains the czxid of the item, because a later item can have the same name.
func (d *delivery) deadLetterOps(reason string) []operation {
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	text, _ := json.Marshal(reasonData{d.name, d.attempt, reason}) // cannot fail
	letter := path.Join(d.q.cfg.Dead, fmt.Sprintf("%s-%x", d.name, uint64(d.czxid)))
	return []operation{
		d.deleteClaimOp(), d.deleteItemOp(),
		{&zk.CreateRequest{Path: letter, Data: d.raw, Acl: d.q.acl}, d, letterCreation},
		{&zk.CreateRequest{Path: path.Join(letter, reasonNode), Data: text, Acl: d.q.acl}, d, otherOperation},
	}
}

// DeadLetters returns the dead letters, in the order of their items. Dead letters that
// other clients requeue or discard during the call may be missing.
func (q *Queue) DeadLetters(ctx context.Context) ([]DeadLetter, error) {
	names, err := request.Read(ctx, q.conn, func() ([]string, error) {
		names, _, err := request.Children(q.conn, q.cfg.Dead)
		return names, err
	})
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, q.wrapError("list dead letters of", err)
	}
	slices.SortFunc(names, q.compareDeadLetters)
	var letters []DeadLetter
	for _, name := range names {
		switch letter, err := q.readDeadLetter(ctx, name); {
		case err == nil:
			letters = append(letters, letter)
		case !errors.Is(err, zk.ErrNoNode):
			return nil, q.wrapError("read dead letters of", err)
		}
	}
	return letters, nil
}

// compareDeadLetters compares the names of dead letters by the positions of their items.
func (q *Queue) compareDeadLetters(a, b string) int {
	x, xok := parseName(q.layout, itemOfDeadLetter(a))
	y, yok := parseName(q.layout, itemOfDeadLetter(b))
	if !xok || !yok {
		return strings.Compare(a, b)
	}
	return compareEntries(x, y)
}

// itemOfDeadLetter returns the name of the item, given the name of its dead letter.
func itemOfDeadLetter(letter string) string {
	if i := strings.LastIndexByte(letter, '-'); i >= 0 {
		return letter[:i]
	}
	return letter
}

func (q *Queue) readDeadLetter(ctx context.Context, name string) (DeadLetter, error) {
	dir := path.Join(q.cfg.Dead, name)
	reason, err := q.readContent(ctx, path.Join(dir, reasonNode))
	if err != nil {
		return DeadLetter{}, err
	}
	letter, err := q.readContent(ctx, dir)
	if err != nil {
		return DeadLetter{}, err
	}
	var r reasonData
	if err := json.Unmarshal(reason.raw, &r); err != nil {
		r = reasonData{Item: itemOfDeadLetter(name), Reason: "unknown: " + err.Error()}
	}
	parts, _ := q.payloads(letter.raw)
	return DeadLetter{
		ID: name, Item: r.Item, Attempts: r.Attempts, Reason: r.Reason,
		Since: time.UnixMilli(letter.stat.Ctime), Raw: letter.raw, Parts: parts,
	}, nil
}

// payloads returns the payloads in the data of an item.
func (q *Queue) payloads(raw []byte) ([][]byte, error) {
	if q.layout == recipes.Kazoo {
		return [][]byte{raw}, nil
	}
	return decode(raw)
}

// Requeue puts a dead letter back into the queue, behind other items of the same priority
// or due time, as an item without previous attempts. It returns [recipes.ErrDeleted] if
// another client has requeued or discarded the dead letter, and [recipes.ErrUnconfirmed]
// like [Queue.Put].
func (q *Queue) Requeue(ctx context.Context, l DeadLetter) error {
	e, ok := parseName(q.layout, l.Item)
	if !ok {
		return q.wrapError("requeue", fmt.Errorf("%w: %q is not the name of an item", zkerror.ErrInvalidOption, l.Item))
	}
	prefix := strings.TrimSuffix(e.name, fmt.Sprintf("%010d", e.sequence))
	return q.wrapError("requeue", q.deleteDeadLetter(ctx, l, &zk.CreateRequest{
		Path: q.itemPath(prefix), Data: l.Raw, Acl: q.acl, Flags: zk.FlagSequence,
	}))
}

// Discard deletes a dead letter permanently. Errors are those of [Queue.Requeue].
func (q *Queue) Discard(ctx context.Context, l DeadLetter) error {
	return q.wrapError("discard", q.deleteDeadLetter(ctx, l))
}

// deleteDeadLetter deletes a dead letter and creates items in the same transaction.
func (q *Queue) deleteDeadLetter(ctx context.Context, l DeadLetter, items ...any) error {
	if q.ctx.Err() != nil {
		return ErrClosed
	}
	dir := path.Join(q.cfg.Dead, l.ID)
	deletes := []any{
		&zk.DeleteRequest{Path: path.Join(dir, reasonNode), Version: -1},
		&zk.DeleteRequest{Path: dir, Version: -1},
	}
	o, err := q.createItems(ctx, append(deletes, items...), len(deletes))
	switch {
	case err != nil:
		return err
	case o.Failed >= 0 && o.Failed < len(deletes) && errors.Is(o.Err, zk.ErrNoNode):
		return zkerror.ErrDeleted
	}
	return o.Err
}
