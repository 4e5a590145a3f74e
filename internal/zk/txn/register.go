package txn

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
)

// register is the writer's znode. Nobody else writes to it.
type register struct {
	path    string
	session int64 // its owner
	version int32
	id      uint64 // the last one used, in or for this register
}

// renewAt is the version at which a register is replaced, long before the
// version overflows: -1 would stand for any. It is a variable for tests.
var renewAt int32 = 1 << 30

// next is a fresh id, greater than those before.
func (r *register) next() []byte {
	r.id++
	return strconv.AppendUint(nil, r.id, 10)
}

// newRegister names one, unlike any other.
func (w *Writer) newRegister() *register {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return &register{path: path.Join(w.Dir, fmt.Sprintf("client-%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))}
}

// open makes a register in the session of now. The error is why there cannot be
// one.
func (w *Writer) open(ctx context.Context) error {
	r := w.newRegister()
	for {
		id := r.next()
		sent := time.Now()
		responses, err := w.Conn.Multi(
			&zk.CreateRequest{Path: r.path, Acl: w.ACL, Flags: zk.FlagEphemeral},
			&zk.SetDataRequest{Path: r.path, Data: id},
		)
		switch {
		case err == nil:
			stat := responses[1].Stat
			r.session, r.version = stat.EphemeralOwner, stat.Version
			w.register = r
			w.tell(stat.Mtime, sent)
			return nil
		case errors.Is(err, zk.ErrNoNode):
			if err := w.MakeDir(ctx); err != nil {
				return err
			}
			continue
		case !request.Transient(err) && !errors.Is(err, zk.ErrNodeExists):
			return err
		}
		// The answer was lost, now or before. The name is the writer's own.
		stat, err := request.Read(ctx, w.Conn, func() (*zk.Stat, error) {
			_, stat, err := w.Conn.Exists(r.path)
			return stat, err
		})
		switch {
		case err != nil:
			return err
		case stat.Czxid == 0: // it is not there; should it come late, it is found then
			_ = request.Pause(ctx, w.backoff.Next())
		case stat.EphemeralOwner == w.Conn.SessionID():
			r.session, r.version = stat.EphemeralOwner, stat.Version
			w.register = r
			return nil
		default: // of a session that is over
			r = w.newRegister()
		}
	}
}

// verdict is what the register says of a batch without an answer.
type verdict int

const (
	unknown verdict = iota
	carriedOut
	never // it was not carried out and cannot be any more
)

// inquire finds out what became of the batch with that id, of which no answer
// came; stat is the register's when it was carried out. err says why it remains
// unknown.
func (w *Writer) inquire(ctx context.Context, id uint64) (v verdict, stat *zk.Stat, err error) {
	r := w.register
	for {
		data, stat, err := w.read(ctx)
		if err != nil {
			w.register = nil
			return unknown, nil, err
		}
		switch last, err := strconv.ParseUint(string(data), 10, 64); {
		case err != nil:
			w.register = nil
			return unknown, nil, fmt.Errorf("another client has written to %s", r.path)
		case last == id:
			r.version = stat.Version
			return carriedOut, stat, nil
		case last > id:
			// The fence below, whose answer was lost.
			r.version = stat.Version
			return never, nil, nil
		}
		// The batch may still be on its way to a server, or be known to others
		// than the one that was read from.
		stat, err = w.Conn.Set(r.path, r.next(), r.version)
		switch {
		case err == nil:
			r.version = stat.Version
			return never, nil, nil
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
			if err := request.Pause(ctx, 5*time.Millisecond); err != nil {
				return unknown, nil, err
			}
		case !request.Transient(err):
			w.register = nil
			return unknown, nil, err
		}
	}
}

func (w *Writer) read(ctx context.Context) (data []byte, stat *zk.Stat, err error) {
	err = request.Retry(ctx, w.Conn, func() (err error) {
		data, stat, err = request.Get(w.Conn, w.register.path)
		return err
	})
	return data, stat, err
}

// remove deletes the register. It returns nil when none is left.
func (w *Writer) remove() error {
	w.mu.Lock()
	over := w.over
	w.mu.Unlock()
	if over != nil {
		return over
	}
	if w.register == nil {
		return nil
	}
	return w.drop(context.Background(), w.register.path)
}

func (w *Writer) drop(ctx context.Context, register string) error {
	err := request.Retry(ctx, w.Conn, func() error { return w.Conn.Delete(register, -1) })
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

func (w *Writer) tell(stamp int64, sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock.told(stamp, sent, time.Now())
}
