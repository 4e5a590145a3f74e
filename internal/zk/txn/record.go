package txn

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// record is the writer's ephemeral znode. No other client writes to it.
type record struct {
	path    string
	session int64  // the owner of the znode
	version int32  // the last known version
	id      uint64 // the last ID that was used
	zxid    int64  // the czxid of the record
	// sent is when the request was sent that has created the znode, zero if the reply was lost.
	sent time.Time
}

// maxVersion is the version at which a record is replaced: at -1, to which it would overflow, a write is
// applied at any version. It is a variable for tests.
var maxVersion int32 = 1 << 30

// nextID returns an ID that is greater than all earlier ones.
func (r *record) nextID() []byte {
	r.id++
	return strconv.AppendUint(nil, r.id, 10)
}

// newRecord returns a record with a unique name, and the operations that create its znode with an ID.
func (w *Writer) newRecord() (*record, []any) {
	r := &record{path: path.Join(w.cfg.Dir, w.cfg.prefix+connection.RandomUUID())}
	return r, []any{
		&zk.CreateRequest{Path: r.path, Acl: w.cfg.ACL, Flags: zk.FlagEphemeral},
		&zk.SetDataRequest{Path: r.path, Data: r.nextID()},
	}
}

// setRecord replaces the record by r, which may be nil.
func (w *Writer) setRecord(r *record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record = r
}

// setCreatedRecord sets the record after its znode was created. sent is zero if the reply was lost.
func (w *Writer) setCreatedRecord(r *record, stat *zk.Stat, sent time.Time) {
	r.session, r.version, r.zxid, r.sent = stat.EphemeralOwner, stat.Version, stat.Czxid, sent
	w.setRecord(r)
	if !sent.IsZero() {
		w.updateClock(stat.Mtime, sent)
	}
}

// createRecord creates a record in the current session, and its directory if that does not exist.
func (w *Writer) createRecord(ctx context.Context, conn *zk.Conn) error {
	type reply struct {
		stat *zk.Stat
		sent time.Time
	}
	for {
		r, ops := w.newRecord()
		created, err := connection.Read(ctx, conn, func() (reply, error) {
			sent := time.Now()
			responses, err := conn.Multi(ops...)
			switch {
			case err == nil:
				return reply{responses[1].Stat, sent}, nil
			case !errors.Is(err, zk.ErrNodeExists):
				return reply{}, err
			}
			// An earlier request was applied, and its reply was lost.
			_, stat, err := conn.Exists(r.path)
			return reply{stat: stat}, err
		})
		switch {
		case errors.Is(err, zk.ErrNoNode) && w.cfg.MakeDir != nil:
			if err := w.cfg.MakeDir(ctx); err != nil {
				return err
			}
		case err != nil:
			return err
		case created.stat.Czxid != 0 && created.stat.EphemeralOwner == conn.SessionID():
			w.setCreatedRecord(r, created.stat, created.sent)
			return nil
		}
		// The session in which the record was created is over.
	}
}

// createDir applies a transaction that creates the directory, and creates the record in the same request.
// It finishes the call unless it returns an error. After a lost reply it sends the transaction again only
// if the record shows that it was not applied.
func (w *Writer) createDir(ctx context.Context, conn *zk.Conn, call *Call) error {
	r, ops := w.newRecord()
	ops = append(slices.Clone(call.t.Ops), ops...)
	lost := false // the reply to an earlier request was lost
	var session int64
	for {
		if !lost {
			session = conn.SessionID()
		}
		sent := time.Now()
		responses, err := conn.Multi(ops...)
		if err == nil {
			stat := responses[len(ops)-1].Stat
			w.setCreatedRecord(r, stat, sent)
			call.finish(Outcome{
				Failed: -1, Responses: responses[:len(call.t.Ops):len(call.t.Ops)],
				Session: r.session, Zxid: r.zxid, Record: r.path, Sent: sent,
			})
			return nil
		}
		transient := connection.Transient(err)
		lost = lost || transient && !errors.Is(err, zk.ErrNoServer)
		if lost || transient {
			stat, readErr := connection.ReadStat(ctx, conn, r.path)
			switch {
			case readErr != nil && lost:
				return fmt.Errorf("%w: %w", ErrUnknown, readErr)
			case readErr != nil:
				return readErr
			case stat.Czxid != 0: // no other client uses the name
				if stat.EphemeralOwner == conn.SessionID() {
					w.setCreatedRecord(r, stat, time.Time{})
				}
				call.finish(Outcome{Failed: -1, Session: stat.EphemeralOwner, Zxid: stat.Czxid, Record: r.path})
				return nil
			case lost && conn.SessionID() != session: // the record may have been deleted with its session
				call.fail(ErrUnknown)
				return nil
			}
		}
		if !transient {
			call.finish(failedOutcome(responses, 0, len(call.t.Ops), err))
			return nil
		}
		// If the lost request is applied after this read, the next one fails, because the directory exists.
		_ = limit.Pause(ctx, w.backoff.Next())
	}
}

// resolve finds out whether the batch with an ID was applied, after the reply was lost. If it was applied,
// it returns the Stat of the record. If it was not, and cannot be any more, it returns nil. The error is the
// reason why the outcome is unknown.
func (w *Writer) resolve(ctx context.Context, conn *zk.Conn, id uint64) (*zk.Stat, error) {
	r := w.record
	for {
		data, stat, err := connection.ReadData(ctx, conn, r.path)
		if err != nil {
			return nil, err
		}
		last, err := strconv.ParseUint(string(data), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("another client has written to %s", r.path)
		}
		if last >= id {
			r.version = stat.Version
			if last == id {
				return stat, nil
			}
			return nil, nil // the reply to the write below was lost
		}
		// The request may still be in transit, or applied on servers that are ahead of the server that has
		// answered. Writing another ID makes it fail. A failed write is followed by another read: a retry could
		// only fail again.
		stat, err = conn.Set(r.path, r.nextID(), r.version)
		switch {
		case err == nil:
			r.version = stat.Version
			return nil, nil
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode), connection.Transient(err):
			_ = limit.Pause(ctx, w.backoff.Next()) // the context is never done
		default:
			return nil, err
		}
	}
}

// deleteLastRecord deletes the record, if it exists, when the Writer is closed.
func (w *Writer) deleteLastRecord(conn *zk.Conn) error {
	w.mu.Lock()
	failed := w.failed
	w.mu.Unlock()
	switch {
	case failed != nil || w.record == nil:
		return failed
	case conn == nil:
		return connection.ErrConnClosed
	}
	return deleteRecord(context.Background(), conn, w.record.path)
}

// deleteRecord deletes a record. It succeeds if the record does not exist.
func deleteRecord(ctx context.Context, conn *zk.Conn, path string) error {
	return connection.Retry(ctx, conn, func() error { return connection.IgnoreNoNode(conn.Delete(path, -1)) })
}

// sharedPrefix begins the names of the records of shared writers.
const sharedPrefix = "_r_"

// sharedWriters contains the shared writers by directory and ACL.
var sharedWriters = connection.NewTables[string, *Writer]()

// Shared returns the Writer of a connection for a directory, for recipes whose handles are not closed: a
// record for each would remain. The Writer must not be closed, and does not create the directory.
func Shared(cfg Config) *Writer {
	shared := sharedWriters.Lock(cfg.Conn)
	defer shared.Unlock()
	key := fmt.Sprint(cfg.Dir, " ", cfg.ACL)
	w := shared.Entries[key]
	if w == nil {
		cfg.prefix = sharedPrefix
		w = New(cfg)
		shared.Entries[key] = w
	}
	return w
}

const (
	// maxBytes limits one transaction: the default jute.maxbuffer of a server, without the write of the
	// record and the headers.
	maxBytes = 1<<20 - 4<<10
	// batchBytes and batchOps limit a request that several transactions share, so that requests of other
	// users of the connection do not have to wait for long.
	batchBytes = 256 << 10
	batchOps   = 200
)

// Size returns the number of bytes of ops in a request, or the reason why they cannot be sent:
// connection.ErrTooLarge, because a server would close the connection, or connection.ErrInvalid.
func Size(ops []any) (int, error) {
	total := 0
	for _, op := range ops {
		const header, length = 9, 4
		total += header
		switch op := op.(type) {
		case *zk.CreateRequest:
			total += length + len(op.Path) + length + len(op.Data) + length + 4
			for _, acl := range op.Acl {
				total += 4 + length + len(acl.Scheme) + length + len(acl.ID)
			}
		case *zk.SetDataRequest:
			total += length + len(op.Path) + length + len(op.Data) + 4
		case *zk.DeleteRequest:
			total += length + len(op.Path) + 4
		case *zk.CheckVersionRequest:
			total += length + len(op.Path) + 4
		default:
			return 0, fmt.Errorf("%w: %T is not an operation of a transaction", connection.ErrInvalid, op)
		}
	}
	if total > maxBytes {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", connection.ErrTooLarge, total, maxBytes)
	}
	return total, nil
}
