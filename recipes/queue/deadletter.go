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
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
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

// why is what is written beside a dead letter.
type why struct {
	Item     string `json:"item"`
	Attempts int    `json:"attempts"`
	Reason   string `json:"reason"`
}

const (
	whyNode = "why"
	// maxReason bounds what is kept of a reason.
	maxReason = 1000
)

// bury makes a dead letter of an item. Its name tells it from a later item of the
// same name.
func (d *delivery) bury(reason string) []step {
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	text, _ := json.Marshal(why{d.name, d.attempt, reason}) // strings and a number
	letter := path.Join(d.q.cfg.Dead, fmt.Sprintf("%s-%x", d.name, uint64(d.czxid)))
	return []step{
		d.deleteClaim(), d.deleteItem(),
		{&zk.CreateRequest{Path: letter, Data: d.raw, Acl: d.q.acl}, d, letterComes},
		{&zk.CreateRequest{Path: path.Join(letter, whyNode), Data: text, Acl: d.q.acl}, d, other},
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
		return nil, q.fail("list dead letters of", err)
	}
	slices.SortFunc(names, q.compareLetters)
	var letters []DeadLetter
	for _, name := range names {
		switch letter, err := q.letter(ctx, name); {
		case err == nil:
			letters = append(letters, letter)
		case !errors.Is(err, zk.ErrNoNode):
			return nil, q.fail("read dead letters of", err)
		}
	}
	return letters, nil
}

func (q *Queue) compareLetters(a, b string) int {
	x, xok := parse(q.layout, letterOf(a))
	y, yok := parse(q.layout, letterOf(b))
	if !xok || !yok {
		return strings.Compare(a, b)
	}
	return compare(x, y)
}

// letterOf is the name of the item that a dead letter was.
func letterOf(letter string) string {
	if i := strings.LastIndexByte(letter, '-'); i >= 0 {
		return letter[:i]
	}
	return letter
}

func (q *Queue) letter(ctx context.Context, name string) (DeadLetter, error) {
	dir := path.Join(q.cfg.Dead, name)
	read := func(node string) (data []byte, stat *zk.Stat, err error) {
		err = request.Retry(ctx, q.conn, func() (err error) {
			data, stat, err = request.Get(q.conn, node)
			return err
		})
		return data, stat, err
	}
	text, _, err := read(path.Join(dir, whyNode))
	if err != nil {
		return DeadLetter{}, err
	}
	raw, stat, err := read(dir)
	if err != nil {
		return DeadLetter{}, err
	}
	var w why
	if err := json.Unmarshal(text, &w); err != nil {
		w = why{Item: letterOf(name), Reason: "unknown: " + err.Error()}
	}
	parts, _ := q.payloads(raw)
	return DeadLetter{
		ID: name, Item: w.Item, Attempts: w.Attempts, Reason: w.Reason,
		Since: time.UnixMilli(stat.Ctime), Raw: raw, Parts: parts,
	}, nil
}

// payloads reads an item's data.
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
	e, ok := parse(q.layout, l.Item)
	if !ok {
		return q.fail("requeue", fmt.Errorf("%w: %q is not the name of an item", zkerror.ErrInvalidOption, l.Item))
	}
	head := strings.TrimSuffix(e.name, fmt.Sprintf("%010d", e.sequence))
	return q.fail("requeue", q.endLetter(ctx, l, &zk.CreateRequest{
		Path: q.item(head), Data: l.Raw, Acl: q.acl, Flags: zk.FlagSequence,
	}))
}

// Discard deletes a dead letter permanently. Errors are those of [Queue.Requeue].
func (q *Queue) Discard(ctx context.Context, l DeadLetter) error {
	return q.fail("discard", q.endLetter(ctx, l))
}

func (q *Queue) endLetter(ctx context.Context, l DeadLetter, further ...any) error {
	if q.ctx.Err() != nil {
		return ErrClosed
	}
	dir := path.Join(q.cfg.Dead, l.ID)
	ops := append([]any{
		&zk.DeleteRequest{Path: path.Join(dir, whyNode), Version: -1},
		&zk.DeleteRequest{Path: dir, Version: -1},
	}, further...)
	o, err := q.put(ctx, txn.Transaction{Ops: ops}, 2)
	if err == nil && o.Failed >= 0 && o.Failed < 2 && errors.Is(o.Err, zk.ErrNoNode) {
		return zkerror.ErrDeleted
	}
	if err == nil {
		err = o.Err
	}
	return err
}
