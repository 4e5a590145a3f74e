// Package receipt carries out transactions of which it can tell afterwards, when a
// reply was lost, whether they were carried out: each one also writes a GUID of its
// own to a znode of the session, the receipt.
package receipt

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

var (
	// ErrUnknown: the session ended before the outcome was known. Nothing of the
	// transaction can be carried out any more.
	ErrUnknown = errors.New("the session ended before the outcome of the transaction was known")
	// ErrGone: the receipt that an earlier transaction has left is gone, with its
	// session or with dir. Nothing was carried out; what the caller knows of dir may
	// be of a znode that does not exist any more. The next Do makes a new one.
	ErrGone = errors.New("the idempotency record of earlier transactions was deleted")
	// ErrLost: the transaction was carried out, but its responses are lost.
	ErrLost = errors.New("the transaction was applied, but its responses are lost")
)

// prefix is that of a receipt's name.
const prefix = "_r_"

// Is reports whether a znode's name is that of a receipt.
func Is(name string) bool { return strings.HasPrefix(name, prefix) }

// Do carries out ops in one transaction, at most once, together with a receipt
// below dir, which ops may create. It repeats the transaction until its outcome is
// known. Transactions of one connection below one dir take turns. ops must be such
// that what has failed once goes on failing, as a set at an old version does: a try
// that is stuck in an old connection may come after another one has failed.
//
// It returns the responses to ops; ErrLost, without responses; ErrUnknown; ErrGone;
// what ZooKeeper has against ops, with the responses, and then nothing was carried out;
// zkerror.ErrConnClosed; or the cause of the context's end, which wraps ErrUnknown too
// where the transaction may yet be carried out.
func Do(ctx context.Context, conn *zk.Conn, dir string, acl []zk.ACL, ops ...any) ([]zk.MultiResponse, error) {
	b := bookOf(conn, dir)
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	t := transaction{book: b, conn: conn, acl: acl, ops: ops, guid: []byte(rand.Text())}
	return t.run(ctx)
}

// Open makes a receipt below dir, unless an earlier transaction of the connection has
// left one: what is read of dir from then on is of a znode that cannot be deleted and
// made anew before the next Do without that returning ErrGone. made says that it was
// made now. Errors are those of Do, but for ErrLost.
func Open(ctx context.Context, conn *zk.Conn, dir string, acl []zk.ACL) (made bool, err error) {
	b := bookOf(conn, dir)
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if b.exists {
		return false, nil
	}
	t := transaction{book: b, conn: conn, acl: acl, guid: []byte(rand.Text())}
	if _, err = t.run(ctx); errors.Is(err, ErrLost) {
		err = nil
	}
	return err == nil, err
}

// transaction is one call of Do. It owns the book while it runs.
type transaction struct {
	*book
	conn *zk.Conn
	acl  []zk.ACL
	ops  []any
	guid []byte
	open bool // a try may have been carried out, or may yet be
}

func (t *transaction) run(ctx context.Context) ([]zk.MultiResponse, error) {
	var backoff request.Backoff
	for {
		if err := context.Cause(ctx); err != nil && !t.open {
			return nil, err
		}
		session := t.conn.SessionID()
		all := append(slices.Clone(t.ops), t.receipt())
		responses, err := request.Do(ctx, func() ([]zk.MultiResponse, error) { return t.conn.Multi(all...) })
		switch {
		case err == nil:
			t.written()
			return responses[:len(t.ops)], nil
		case request.Transient(err):
			t.open = true
			if request.Closed(ctx, t.conn, err) {
				return nil, zkerror.ErrConnClosed
			}
			if err := t.readBack(ctx, session); err != nil {
				return nil, err
			}
			_ = request.Pause(ctx, backoff.Next()) // its end is seen by the next try
			continue
		case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
			return nil, fmt.Errorf("%w (%w)", err, ErrUnknown)
		}
		receiptFailed := len(responses) > len(t.ops) && firstError(responses) == len(t.ops)
		if receiptFailed || t.open {
			if err := t.readBack(ctx, session); err != nil {
				return nil, err
			}
		}
		if !receiptFailed {
			return responses[:min(len(responses), len(t.ops))], err
		}
	}
}

// receipt is the request that writes the receipt. Of several tries with the same
// expectation only one can be carried out.
func (t *transaction) receipt() any {
	if t.exists {
		return &zk.SetDataRequest{Path: t.path, Data: t.guid, Version: t.version}
	}
	return &zk.CreateRequest{Path: t.path, Data: t.guid, Acl: t.acl, Flags: zk.FlagEphemeral}
}

func (t *transaction) written() {
	if t.exists {
		t.version++
	} else {
		t.exists, t.version = true, 0
	}
}

// read is what reading a receipt returns.
type read struct {
	data []byte
	stat *zk.Stat // nil without a receipt
}

// readBack finds out whether a try was carried out in session, and brings the book
// up to date. It returns nil when none was and another try can be made.
func (t *transaction) readBack(ctx context.Context, session int64) error {
	r, err := request.Read(ctx, t.conn, func() (read, error) {
		if _, err := t.conn.Sync(path.Dir(t.path)); err != nil {
			return read{}, err
		}
		data, stat, err := request.Get(t.conn, t.path)
		if errors.Is(err, zk.ErrNoNode) {
			return read{}, nil
		}
		return read{data, stat}, err
	})
	switch {
	case err != nil && t.open:
		return fmt.Errorf("%w (%w)", err, ErrUnknown)
	case err != nil:
		return err
	case r.stat == nil:
		existed := t.exists
		t.exists = false
		switch {
		case t.open && (existed || t.conn.SessionID() != session):
			return ErrUnknown
		case existed:
			return ErrGone
		}
		return nil
	}
	t.exists, t.version = true, r.stat.Version
	if string(r.data) == string(t.guid) {
		return ErrLost
	}
	return nil
}

// firstError is the index of the request that made a transaction fail: those before
// it have no error, those after it one that says just this.
func firstError(responses []zk.MultiResponse) int {
	return slices.IndexFunc(responses, func(r zk.MultiResponse) bool { return r.Error != nil })
}
