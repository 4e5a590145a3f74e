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

	"github.com/go-leaderelection/leaderelection/internal/once"
	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/sentinel"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// DeadLetter is an item that is not handed out any more, because it has used up its
// attempts or its data is not in the layout's format.
type DeadLetter struct {
	ID       string // of the letter
	Item     string // what Item.ID was
	Attempts int
	Reason   string
	Since    time.Time // by the clock of the ensemble
	// Raw is the item's data as it was in ZooKeeper, and Parts are the payloads
	// in it, nil if that is not in the layout's format.
	Raw   []byte
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

// DeadLetters lists the dead letters, those of the least items first. What others
// requeue or discard meanwhile may be missing.
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

// Requeue puts a dead letter back into the queue, behind the others of its priority
// or due time, as an item that was never attempted. [recipes.ErrDeleted]: the
// letter is gone, somebody else has requeued or discarded it.
// [recipes.ErrUnconfirmed] is as for [Queue.Put].
func (q *Queue) Requeue(ctx context.Context, l DeadLetter) error {
	e, ok := parse(q.layout, l.Item)
	if !ok {
		return q.fail("requeue", fmt.Errorf("%w: no item can have been called %q", sentinel.ErrInvalidOption, l.Item))
	}
	head := strings.TrimSuffix(e.name, fmt.Sprintf("%010d", e.sequence))
	return q.fail("requeue", q.endLetter(ctx, l, &zk.CreateRequest{
		Path: q.item(head), Data: l.Raw, Acl: q.acl, Flags: zk.FlagSequence,
	}))
}

// Discard deletes a dead letter for good. The errors are those of [Queue.Requeue].
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
	o, err := q.put(ctx, once.Transaction{Ops: ops}, 2)
	if err == nil && o.Failed >= 0 && o.Failed < 2 && errors.Is(o.Err, zk.ErrNoNode) {
		return sentinel.ErrDeleted
	}
	if err == nil {
		err = o.Err
	}
	return err
}
