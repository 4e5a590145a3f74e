package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/argument"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/codec"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/internal/zk/znode"
)

// Store stores the record of one election in a znode. It implements [changefeed.Store].
// Its methods may be called from any goroutine.
type Store struct {
	changefeed.NoChanges

	conn           *zk.Conn
	path           string
	acl            []zk.ACL
	existingParent bool
	feeds          *changefeed.Feeds
}

var _ changefeed.Store = (*Store)(nil)

// Option configures [New].
type Option func(*Store) error

// WithACL sets the ACL of the znodes that Create creates. By default all clients have all
// permissions. Candidates need to read, write and create.
func WithACL(acl []zk.ACL) Option {
	return func(s *Store) error {
		if len(acl) == 0 {
			return errors.New("WithACL: the list is empty")
		}
		s.acl = acl
		return nil
	}
}

// WithExistingParent makes Create not create the parent znodes: if they do not exist,
// Create returns [changefeed.ErrNoRecord].
func WithExistingParent() Option {
	return func(s *Store) error { s.existingParent = true; return nil }
}

// New creates a store of the record at path. The caller keeps ownership of conn, which
// may be shared; Close does not close it. New sends no request. Errors:
// [leaderelection.ErrNilConn], [leaderelection.ErrInvalidPath],
// [leaderelection.ErrInvalidOption].
func New(conn *zk.Conn, path string, opts ...Option) (*Store, error) {
	if conn == nil {
		return nil, leaderelection.ErrNilConn
	}
	if err := znode.CheckPath(path); err != nil {
		return nil, err
	}
	s := &Store{conn: conn, path: path, acl: zk.WorldACL(zk.PermAll)}
	s.feeds = changefeed.NewFeeds(s.Read, s.watch, 0)
	if err := argument.ApplyOptions(s, opts); err != nil {
		return nil, err
	}
	return s, nil
}

// impossibleVersion is a version that no znode has. A write with this version changes nothing, but
// fails with another error if the client has no permission, because ZooKeeper checks permissions
// first.
const impossibleVersion = -2

// Start implements [changefeed.Store]. It checks that the record can be read and written,
// or created.
func (s *Store) Start(ctx context.Context) error {
	r, err := s.readRecord(ctx, false)
	switch {
	case errors.Is(err, changefeed.ErrNoRecord):
		return s.checkCreate(ctx)
	case err != nil:
		return err
	}
	_, err = s.multi(ctx, s.checkEpoch(r.Epoch), &zk.SetDataRequest{Path: s.path, Version: impossibleVersion})
	if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return s.wrapError(ctx, "try to write to", err)
}

// checkCreate checks that Create is permitted. It sends a transaction that creates a znode twice,
// which always fails, for the record or for its nearest ancestor that can be created.
func (s *Store) checkCreate(ctx context.Context) error {
	for node := s.path; ; node = path.Dir(node) {
		ops := []any{s.create(node, nil)}
		if node == s.path {
			ops = append(ops, s.create(s.path+"/epoch", nil))
		}
		_, err := s.multi(ctx, append(ops, s.create(node, nil))...)
		switch {
		case errors.Is(err, zk.ErrNoNode) && s.existingParent:
			return fmt.Errorf("%w: %w", changefeed.ErrUnsuitable, s.errNoParent())
		case errors.Is(err, zk.ErrNoNode) && path.Dir(node) != "/":
		case errors.Is(err, zk.ErrNodeExists):
			return nil
		default:
			return s.wrapError(ctx, "try to create", err)
		}
	}
}

func (s *Store) errNoParent() error {
	return fmt.Errorf("%w: %s does not exist: create it or omit WithExistingParent",
		changefeed.ErrNoRecord, path.Dir(s.path))
}

// Create implements [changefeed.Store]. It creates the record and its epoch znode in one
// transaction. It creates missing parents unless [WithExistingParent] is given.
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	data, err := codec.Encode(blank)
	if err != nil {
		return err
	}
	for {
		old, err := s.readRecord(ctx, false)
		var ops []any
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, changefeed.ErrNoRecord):
			return err
		case old.Version != "": // A deletion was interrupted after the epoch znode was deleted.
			_, version, _ := parseVersion(old.Version)
			ops = append(ops, &zk.DeleteRequest{Path: s.path, Version: version})
		}
		ops = append(ops, s.create(s.path, data), s.create(s.epochNode(blank.Epoch), nil))
		_, err = s.multi(ctx, ops...)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNotEmpty):
			// Another client was faster: read again.
		case errors.Is(err, zk.ErrNoNode) && len(ops) == 3:
			// Another client has deleted the rest of the old record: read again.
		case errors.Is(err, zk.ErrNoNode) && s.existingParent:
			return s.errNoParent()
		case errors.Is(err, zk.ErrNoNode):
			if err := s.createParents(ctx); err != nil {
				return s.wrapError(ctx, "create the parents of", err)
			}
		default:
			return s.wrapError(ctx, "create", err)
		}
	}
}

func (s *Store) createParents(ctx context.Context) error {
	_, err := call(ctx, s, func() (struct{}, error) {
		return struct{}{}, znode.Make(ctx, s.conn, path.Dir(s.path), s.acl, false)
	})
	return err
}

// Heartbeat implements [changefeed.Store]. ZooKeeper compares the version of the znode,
// which restarts if the znode is created again, so the epoch znode is checked as well. If
// the record was not written because it cannot be stored, or because a permission is
// missing, the error wraps [changefeed.ErrUnsuitable].
func (s *Store) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	data, err := codec.Encode(next)
	if err != nil {
		return changefeed.Record{}, err
	}
	czxid, version, err := parseVersion(prev.Version)
	if err != nil {
		return changefeed.Record{}, s.conflict(ctx, false)
	}
	ops := []any{s.checkEpoch(prev.Epoch), &zk.SetDataRequest{Path: s.path, Data: data, Version: version}}
	if next.Epoch != prev.Epoch {
		ops = append(ops, s.create(s.epochNode(next.Epoch), nil), &zk.DeleteRequest{Path: s.epochNode(prev.Epoch), Version: -1})
	}
	results, err := s.multi(ctx, ops...)
	switch {
	case err == nil:
		stat := results[1].Stat
		if stat.Czxid != czxid {
			return changefeed.Record{}, fmt.Errorf("changefeed/zookeeper: %s was deleted and created again with the same epoch", s.path)
		}
		next.Time, next.Version = timeAndVersion(stat)
		return next, nil
	case errors.Is(err, zk.ErrBadVersion):
		return changefeed.Record{}, changefeed.ErrConflict
	case errors.Is(err, zk.ErrNoNode): // The record is missing, or has another epoch.
		return changefeed.Record{}, s.conflict(ctx, true)
	case errors.Is(err, zkerror.ErrConnClosed):
		// wrapError would wrap ErrUnsuitable, but it is unknown whether the record was written.
		return changefeed.Record{}, fmt.Errorf("changefeed/zookeeper: write to %s: %w: %w", s.path, leaderelection.ErrConnClosed, err)
	default:
		return changefeed.Record{}, s.wrapError(ctx, "write to", err)
	}
}

// conflict returns the error of a heartbeat that did not find the record that it should replace.
func (s *Store) conflict(ctx context.Context, sync bool) error {
	if _, err := s.readRecord(ctx, sync); err != nil {
		return err
	}
	return changefeed.ErrConflict
}

// Read implements [changefeed.Store]. It is linearizable: it observes all writes that
// were acknowledged before it was called.
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	r, err := s.readRecord(ctx, true)
	if err != nil {
		return changefeed.Record{}, err
	}
	return r, nil
}

// readRecord reads the record. If sync is set, the server first applies all writes that were
// acknowledged before. If the znode exists without an epoch znode, readRecord returns the record
// together with ErrNoRecord.
func (s *Store) readRecord(ctx context.Context, sync bool) (changefeed.Record, error) {
	type content struct {
		data []byte
		stat *zk.Stat
	}
	c, err := call(ctx, s, func() (c content, err error) {
		if sync {
			if _, err := s.conn.Sync(s.path); err != nil {
				return c, err
			}
		}
		c.data, c.stat, err = request.Get(s.conn, s.path)
		return c, err
	})
	if err != nil {
		return changefeed.Record{}, s.wrapError(ctx, "read", err)
	}
	return s.decode(c.data, c.stat)
}

// multi executes a transaction. The error is that of the operation that failed.
func (s *Store) multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return call(ctx, s, func() ([]zk.MultiResponse, error) { return s.conn.Multi(ops...) })
}

// call sends the request f. If ctx is done or the store is closed first, the request continues
// until the connection answers it.
func call[T any](ctx context.Context, s *Store, f func() (T, error)) (T, error) {
	value, err := changefeed.Call(ctx, s.feeds, func(context.Context) (T, error) { return f() })
	if request.Closed(ctx, s.conn, err) {
		err = zkerror.ErrConnClosed
	}
	return value, err
}

// wrapError adds the operation to err, and wraps it with the corresponding error of package changefeed.
func (s *Store) wrapError(ctx context.Context, operation string, err error) error {
	return s.feeds.WrapError(ctx, fmt.Sprintf("changefeed/zookeeper: %s %s", operation, s.path), err, meaningOf)
}

// meaningOf returns the error of package changefeed that corresponds to an error of the client, or
// nil.
func meaningOf(err error) error {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return changefeed.ErrNoRecord
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrAuthFailed), errors.Is(err, zk.ErrInvalidACL):
		return fmt.Errorf("%w: %w: the connection's credentials need the permissions to read, write and create on the znode, and to create on its parent",
			changefeed.ErrUnsuitable, leaderelection.ErrPermission)
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return fmt.Errorf("%w: its parent is ephemeral; use another path", changefeed.ErrUnsuitable)
	case errors.Is(err, zkerror.ErrConnClosed), errors.Is(err, zk.ErrClosing):
		return fmt.Errorf("%w: %w: create a new connection and a new store", changefeed.ErrUnsuitable, leaderelection.ErrConnClosed)
	}
	return nil
}

// Close implements [changefeed.Store]. A request in flight continues until the connection
// answers it.
func (s *Store) Close() error { return s.feeds.Close() }
