package txn

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// register is the writer's znode. No other client writes to it.
type register struct {
	path    string
	session int64 // its owner
	version int32
	id      uint64    // the last ID that was used for this register
	zxid    int64     // of its creation
	sent    time.Time // when the request was sent that created it; zero if the reply was lost
}

// renewAt is the version at which a register is replaced, long before the version overflows:
// version -1 means any version. It is a variable for tests.
var renewAt int32 = 1 << 30

// next returns an ID that is greater than all before.
func (r *register) next() []byte {
	r.id++
	return strconv.AppendUint(nil, r.id, 10)
}

// newRegister returns a register with a unique name.
func (w *Writer) newRegister() *register {
	prefix := w.Prefix
	if prefix == "" {
		prefix = "client-"
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	name := fmt.Sprintf("%s%x-%x-%x-%x-%x", prefix, b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	return &register{path: path.Join(w.Dir, name)}
}

// open creates a register in the current session. If first is not nil, it is a transaction that
// creates the directory: open applies it in the same request, and finishes it unless it returns an
// error.
func (w *Writer) open(ctx context.Context, conn *zk.Conn, first *Call) error {
	r := w.newRegister()
	var ops []any
	if first != nil {
		ops = first.Ops
	}
	var session int64
	pending := false // an earlier request may have been applied, or may be applied later
	for {
		if !pending {
			session = conn.SessionID()
		}
		id := r.next()
		if first != nil && first.Sending != nil {
			first.Sending()
		}
		sent := time.Now()
		responses, err := conn.Multi(append(slices.Clone(ops),
			&zk.CreateRequest{Path: r.path, Acl: w.ACL, Flags: zk.FlagEphemeral},
			&zk.SetDataRequest{Path: r.path, Data: id},
		)...)
		refused := Outcome{Err: err, Failed: firstError(responses)}
		if refused.Failed >= len(ops) {
			refused.Failed = -1
		} else if refused.Failed >= 0 {
			refused.Err = responses[refused.Failed].Error
		}
		switch {
		case err == nil:
			stat := responses[len(ops)+1].Stat
			r.session, r.version, r.zxid, r.sent = stat.EphemeralOwner, stat.Version, stat.Mzxid, sent
			w.use(r)
			w.told(stat.Mtime, sent)
			if first != nil {
				first.finish(Outcome{
					Failed: -1, Responses: responses[:len(ops):len(ops)],
					Session: r.session, Zxid: r.zxid, Register: r.path, Sent: sent,
				})
			}
			return nil
		case errors.Is(err, zk.ErrNoNode) && first == nil && w.MakeDir != nil:
			if err := w.MakeDir(ctx); err != nil {
				return err
			}
			continue
		case request.Transient(err):
			pending = pending || !errors.Is(err, zk.ErrNoServer)
		case !pending && first != nil:
			first.finish(refused)
			return nil
		case first == nil && !errors.Is(err, zk.ErrNodeExists):
			return err
		}
		// The reply was lost, now or before. No other client uses the name.
		stat, readErr := request.Read(ctx, conn, func() (*zk.Stat, error) {
			_, stat, err := conn.Exists(r.path)
			return stat, err
		})
		switch {
		case readErr != nil && pending && first != nil:
			return fmt.Errorf("%w: %w", ErrUnknown, readErr)
		case readErr != nil:
			return readErr
		case stat.Czxid == 0 && pending && first != nil && conn.SessionID() != session:
			first.fail(ErrUnknown) // the register may have been deleted with its session
			return nil
		case stat.Czxid == 0 && first != nil && !request.Transient(err):
			first.finish(refused)
			return nil
		case stat.Czxid == 0: // if the request is applied later, the register exists then
			_ = request.Pause(ctx, w.backoff.Next())
			continue
		case stat.EphemeralOwner == conn.SessionID():
			r.session, r.version, r.zxid = stat.EphemeralOwner, stat.Version, stat.Czxid
			w.use(r)
		case first == nil: // it belongs to a session that is over
			r = w.newRegister()
			continue
		}
		if first != nil {
			first.finish(Outcome{Failed: -1, Session: stat.EphemeralOwner, Zxid: stat.Czxid, Register: r.path})
		}
		return nil
	}
}

// verdict is what the register shows about a batch whose reply was lost.
type verdict int

const (
	unknown verdict = iota
	applied
	never // it was not applied and cannot be applied any more
)

// inquire finds out whether the batch with an ID was applied; stat is that of the register if it
// was. The error is why that remains unknown.
func (w *Writer) inquire(ctx context.Context, conn *zk.Conn, id uint64) (v verdict, stat *zk.Stat, err error) {
	r := w.register
	for {
		data, stat, err := w.read(ctx, conn)
		if err != nil {
			w.use(nil)
			return unknown, nil, err
		}
		switch last, err := strconv.ParseUint(string(data), 10, 64); {
		case err != nil:
			w.use(nil)
			return unknown, nil, fmt.Errorf("another client has written to %s", r.path)
		case last == id:
			r.version = stat.Version
			return applied, stat, nil
		case last > id:
			// The write below was applied, and its reply was lost.
			r.version = stat.Version
			return never, nil, nil
		}
		// The request may still be on its way to a server, or be applied on servers that are
		// ahead of the one that has answered.
		stat, err = conn.Set(r.path, r.next(), r.version)
		switch {
		case err == nil:
			r.version = stat.Version
			return never, nil, nil
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
			if err := request.Pause(ctx, 5*time.Millisecond); err != nil {
				return unknown, nil, err
			}
		case !request.Transient(err):
			w.use(nil)
			return unknown, nil, err
		}
	}
}

func (w *Writer) read(ctx context.Context, conn *zk.Conn) (data []byte, stat *zk.Stat, err error) {
	err = request.Retry(ctx, conn, func() (err error) {
		data, stat, err = request.Get(conn, w.register.path)
		return err
	})
	return data, stat, err
}

// remove deletes the register. It returns nil if none is left.
func (w *Writer) remove(conn *zk.Conn) error {
	w.mu.Lock()
	over := w.over
	w.mu.Unlock()
	switch {
	case over != nil || w.register == nil:
		return over
	case conn == nil:
		return zkerror.ErrConnClosed
	}
	return w.drop(context.Background(), conn, w.register.path)
}

func (w *Writer) drop(ctx context.Context, conn *zk.Conn, register string) error {
	err := request.Retry(ctx, conn, func() error { return conn.Delete(register, -1) })
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// told updates the clock by the time of a transaction in milliseconds since 1970.
func (w *Writer) told(stamp int64, sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock.told(stamp, sent, time.Now())
}
