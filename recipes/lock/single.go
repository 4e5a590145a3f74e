package lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/ephemeral"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Single is a mutual-exclusion lock that consists of one ephemeral znode at a fixed path: the session that has
// created the znode holds the lock. Many programs implement this lock by hand, and read the data of the znode to
// find the holder. They can share it with a Single, so that such programs can be migrated one process at a time.
//
// Waiting clients have no order: when the znode is deleted, all of them try to create it, and one of them
// succeeds. With n waiting clients, each release costs 2n requests, half of them writes, and a client can wait for
// any time. So a Single is suitable for a few clients and long holds. For others use a [Mutex].
//
// Like the methods of a [Mutex], its methods may be called from any goroutine, and each call is a separate
// contender.
type Single struct {
	setup *recipe.Setup
	data  []byte
}

// NewSingle returns the lock whose znode is at path. data is the data of the znode while this client holds the
// lock, for instance the owner as JSON; this library does not interpret it. NewSingle sends no request. Missing
// parents of the znode are created as persistent znodes. Options are those of package recipes. Errors:
// [recipes.ErrInvalid].
//
// The first call of [Hold.Multi] creates another ephemeral znode with the same parent, which remains until the
// session ends. It ensures that no transaction is applied after the session has ended, although the znode at path can
// belong to the next holder. Programs must not delete the znode of a holder: the next client holds the lock
// immediately, and a transaction or a release of the former holder that is in flight is applied. Call Release after
// Multi has returned.
func NewSingle(conn *zk.Conn, path string, data []byte, opts ...Option) (*Single, error) {
	s, err := recipe.New(conn, path, opts, Option.ApplyLock)
	if err != nil {
		return nil, err
	}
	if err := ephemeral.CheckSize(path, data, s.ACL); err != nil {
		return nil, err
	}
	s.Log = s.Log.With("lock", path)
	return &Single{s, bytes.Clone(data)}, nil
}

// Lock acquires the lock, and blocks until no other client holds it, also while ZooKeeper does not answer, and
// across sessions. A znode of an earlier session of this connection is not adopted: Lock waits until the servers
// have deleted it.
//
// If the context is done first, Lock returns its cause immediately, and a znode that was created is removed in the
// background. Other errors: [recipes.ErrTaken] if the znode is persistent, because it would not be deleted when its
// creator ends; [recipes.ErrConnClosed], [recipes.ErrPermission], and [ErrReentrant] if ctx is derived from the
// context of a hold of this lock.
func (s *Single) Lock(ctx context.Context) (*Hold, error) {
	h, err := s.acquire(ctx, false)
	return h, s.setup.Fail("lock", s.setup.Path, err)
}

// TryLock is like Lock, but does not wait for other clients: it returns [ErrHeld] if another client holds the lock,
// or if another goroutine waits for it on this connection. It still waits for ZooKeeper.
func (s *Single) TryLock(ctx context.Context) (*Hold, error) {
	h, err := s.acquire(ctx, true)
	return h, s.setup.Fail("try to lock", s.setup.Path, err)
}

// Do calls f once, while it holds the lock. See [Mutex.Do].
func (s *Single) Do(ctx context.Context, f func(ctx context.Context, h *Hold) error, opts ...DoOption) error {
	return doWhileHeld(ctx, s.setup, opts, s.Lock, s.TryLock, f)
}

// Holder returns the client that holds the lock: its Name is the data of the znode, and Holds is true. If no client
// holds the lock, the result is the zero Contender. Holder sends one request. The server to which the client is
// connected answers, so the result may be slightly out of date. If the znode is persistent, the error wraps
// [recipes.ErrTaken].
func (s *Single) Holder(ctx context.Context) (Contender, error) {
	data, stat, err := connection.ReadExisting(ctx, s.setup.Conn, s.setup.Path)
	switch {
	case stat == nil: // no client holds the lock, or err says why the holder could not be read
	case !connection.IsEphemeral(stat):
		err = s.takenError(&ephemeral.TakenError{Path: s.setup.Path, Persistent: true})
	default:
		return Contender{Path: s.setup.Path, Name: string(data), Token: stat.Czxid, Holds: true}, nil
	}
	return Contender{}, s.setup.Fail("read the holder of", s.setup.Path, err)
}

func (s *Single) acquire(ctx context.Context, noWait bool) (*Hold, error) {
	if err := checkReentry(ctx, s.setup, true); err != nil {
		return nil, err
	}
	return acquireAndEmitEvents(s.setup, func() (*Hold, error) {
		return recipe.AcrossSessions(ctx, lostBeforeGrant, func() (*Hold, error) { return s.acquireOnce(ctx, noWait) })
	})
}

// lostBeforeGrant reports whether err means that the znode of an acquisition was deleted before the lock was
// granted. The end of the session may be reported as such a deletion.
func lostBeforeGrant(err error) bool {
	return recipe.SessionExpired(err) || errors.Is(err, connection.ErrDeleted)
}

func (s *Single) acquireOnce(ctx context.Context, noWait bool) (*Hold, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	n, err := ephemeral.Create(ctx, s.setup, s.setup.Path, s.data, func(e *ephemeral.TakenError) error {
		switch {
		case e.Persistent:
			return s.takenError(e)
		case noWait:
			return fmt.Errorf("%w: %w", ErrHeld, e)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	left := make(chan struct{})
	close(left) // the entry has no goroutine that must end; n removes the znode
	return &Hold{
		entry: &entry{
			conn: s.setup.Conn, dir: s.setup.Path, timeout: s.setup.Timeout, path: n.Path(),
			session: func(ctx context.Context, gone string) (string, error) { return s.recordPath(ctx, n.Owner(), gone) },
			stop:    n.Leave, left: left, removal: n,
		},
		grant: n.Grant(),
	}, nil
}

// takenError returns the error for a persistent znode.
func (s *Single) takenError(e *ephemeral.TakenError) error {
	return fmt.Errorf("%w: %w: delete %s if no program needs it", recipes.ErrTaken, e, e.Path)
}

// recordPath returns the path of a record: an ephemeral znode of a session, with the same parent as the znode
// of the lock. It creates the record if necessary. gone is the path that an earlier call has returned, if that
// record does not exist any more, and is empty otherwise. A transaction requires the record, because the client
// library can send the transaction in the next session, in which the znode at the path of the lock can belong
// to another client.
func (s *Single) recordPath(ctx context.Context, session int64, gone string) (string, error) {
	w := txn.Shared(txn.Config{Options: s.setup.Options, Dir: path.Dir(s.setup.Path)})
	if r := w.RecordOf(session); r != "" && r != gone {
		return r, nil
	}
	o, err := w.Confirm(ctx) // creates the record if it does not exist
	switch {
	case ctx.Err() != nil, err == nil && (o.Session != session || o.Record == gone):
		return "", recipes.ErrNotHeld
	case err != nil:
		return "", s.setup.Fail("create a record for transactions as holder of", s.setup.Path, err)
	}
	return o.Record, nil
}
