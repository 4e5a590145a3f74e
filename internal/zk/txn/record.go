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

// record describes the record of a writer: an ephemeral znode into which each request of the writer writes another
// ID. No other client writes to this znode.
type record struct {
	path    string
	session int64  // the owner of the znode
	version int32  // the last known version of the data
	id      uint64 // the last ID that the writer has used
	zxid    int64  // the creation zxid of the record
	// sent is when the client has sent the request that has created the znode, or zero if the reply was lost.
	sent time.Time
}

// maxVersion is the version at which the writer replaces the record. After an overflow the version would become -1,
// and a write that expects -1 is applied at any version. maxVersion is a variable, because tests set it.
var maxVersion int32 = 1 << 30

// nextID returns an ID that is greater than all earlier IDs of the record.
func (r *record) nextID() []byte {
	r.id++
	return strconv.AppendUint(nil, r.id, 10)
}

// newRecord returns a record with a unique name, and the operations that create the znode of the record and write
// an ID into it.
func (w *Writer) newRecord() (*record, []any) {
	r := &record{path: path.Join(w.cfg.Dir, w.cfg.prefix+connection.RandomUUID())}
	return r, []any{
		&zk.CreateRequest{Path: r.path, Acl: w.cfg.ACL, Flags: zk.FlagEphemeral},
		&zk.SetDataRequest{Path: r.path, Data: r.nextID()},
	}
}

// setRecord replaces the record of the writer by r, which may be nil.
func (w *Writer) setRecord(r *record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record = r
}

// setCreatedRecord makes r, whose znode was created, the record of the writer. sent is zero if the reply was lost.
func (w *Writer) setCreatedRecord(r *record, stat *zk.Stat, sent time.Time) {
	r.session, r.version, r.zxid, r.sent = stat.EphemeralOwner, stat.Version, stat.Czxid, sent
	w.setRecord(r)
	if !sent.IsZero() {
		w.updateClock(stat.Mtime, sent)
	}
}

// createRecord creates a record in the current session, and the directory if it does not exist and Config.MakeDir
// is set.
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
			// The servers have applied an earlier request, whose reply was lost.
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
		// The session that has created the record has ended, so create another record.
	}
}

// createDir applies a transaction that creates the directory, and creates the record in the same request. It
// finishes the call unless it returns an error. After a lost reply, createDir sends the transaction again only if
// the record shows that the servers have not applied it.
func (w *Writer) createDir(ctx context.Context, conn *zk.Conn, call *Call) error {
	r, ops := w.newRecord()
	ops = append(slices.Clone(call.t.Ops), ops...)
	lost := false // the reply to an earlier request of this call was lost
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
			case stat.Czxid != 0: // the name is unique, so a request of this call has created the record
				if stat.EphemeralOwner == conn.SessionID() {
					w.setCreatedRecord(r, stat, time.Time{})
				}
				call.finish(Outcome{Failed: -1, Session: stat.EphemeralOwner, Zxid: stat.Czxid, Record: r.path})
				return nil
			case lost && conn.SessionID() != session: // the servers may have deleted the record with its session
				call.fail(ErrUnknown)
				return nil
			}
		}
		if !transient {
			call.finish(failedOutcome(responses, 0, len(call.t.Ops), err))
			return nil
		}
		// If the servers apply the lost request after this read, the next request fails, because the directory
		// exists.
		_ = limit.Pause(ctx, w.backoff.Next())
	}
}

// findOutcome finds out, after a lost reply, whether the servers have applied the batch with the given ID. It returns
// the Stat of the record if they have, and nil if they have not and cannot apply the batch any more. The error is the
// reason why the outcome is unknown.
func (w *Writer) findOutcome(ctx context.Context, conn *zk.Conn, id uint64) (*zk.Stat, error) {
	r := w.record
	for {
		data, stat, err := connection.ReadData(ctx, conn, r.path)
		if err != nil {
			return nil, err
		}
		last, err := strconv.ParseUint(string(data), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("another client has written to the record %s", r.path)
		}
		if last >= id {
			r.version = stat.Version
			if last == id {
				return stat, nil
			}
			return nil, nil // the write below was applied in an earlier attempt, and its reply was lost
		}
		// The request may still be in transit, or servers that are ahead of the server that has answered may have
		// applied it. After the write of another ID, the servers cannot apply the request any more. If the write
		// fails, read the record again, because the same write could only fail again.
		stat, err = conn.Set(r.path, r.nextID(), r.version)
		switch {
		case err == nil:
			r.version = stat.Version
			return nil, nil
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode), connection.Transient(err):
			_ = limit.Pause(ctx, w.backoff.Next()) // the error is nil, because the context is never done
		default:
			return nil, err
		}
	}
}

// deleteLastRecord deletes the record, if there is one, when the Writer is closed.
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

// deleteRecord deletes a record. It returns nil if the record does not exist.
func deleteRecord(ctx context.Context, conn *zk.Conn, path string) error {
	return connection.Retry(ctx, conn, func() error { return connection.IgnoreNoNode(conn.Delete(path, -1)) })
}

// sharedPrefix is the beginning of the names of the records of shared writers.
const sharedPrefix = "_r_"

// sharedWriters contains the shared writers, by directory and ACL.
var sharedWriters = connection.NewTables[string, *Writer]()

// Shared returns the only Writer of a connection for a directory and an ACL. It is for recipes whose values are not
// closed, because one record for each value would remain. The caller must not close the Writer. The Writer does not
// create the directory.
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
	// maxBytes limits the size of one transaction: servers accept requests of the default jute.maxbuffer, which
	// also contain the write of the record and the headers.
	maxBytes = 1<<20 - 4<<10
	// batchBytes and batchOps limit a request that several transactions share, so that requests of other users of
	// the connection do not wait for long.
	batchBytes = 256 << 10
	batchOps   = 200
)

// Size returns the number of bytes of ops in a request. It returns connection.ErrTooLarge if a server would close
// the connection because of the size, and connection.ErrInvalid if ops contains anything but operations.
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
		return 0, fmt.Errorf("%w: %d bytes exceed the limit of %d", connection.ErrTooLarge, total, maxBytes)
	}
	return total, nil
}
