package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/codec"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/internal/zk/znode"
)

// Store stores the record of one election in a znode. It implements [changefeed.Store].
// Its methods may be called from any goroutine.
type Store struct {
	changefeed.NoChanges

	conn     *zk.Conn
	path     string
	acl      []zk.ACL
	existing bool
	feeds    *changefeed.Feeds
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
	return func(s *Store) error { s.existing = true; return nil }
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
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("%w: an option is nil", leaderelection.ErrInvalidOption)
		}
		if err := o(s); err != nil {
			return nil, fmt.Errorf("%w: %w", leaderelection.ErrInvalidOption, err)
		}
	}
	return s, nil
}

// never is a version that no znode has: a write that names it changes nothing, and is
// answered by who may write, because ZooKeeper looks at permissions first.
const never = -2

// Start implements [changefeed.Store]. It checks that the record can be read and written,
// or created.
func (s *Store) Start(ctx context.Context) error {
	r, err := s.get(ctx, false)
	switch {
	case errors.Is(err, changefeed.ErrNoRecord):
		return s.tryCreate(ctx)
	case err != nil:
		return err
	}
	_, err = s.multi(ctx, s.check(r), &zk.SetDataRequest{Path: s.path, Version: never})
	if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return s.fail(ctx, "try to write to", err)
}

// tryCreate asks whether Create would be permitted: by a transaction that makes a znode
// twice, and so makes nothing.
func (s *Store) tryCreate(ctx context.Context) error {
	for node := s.path; ; node = path.Dir(node) {
		ops := []any{s.create(node, nil)}
		if node == s.path {
			ops = append(ops, s.create(s.path+"/epoch", nil))
		}
		_, err := s.multi(ctx, append(ops, s.create(node, nil))...)
		switch {
		case errors.Is(err, zk.ErrNoNode) && s.existing:
			return fmt.Errorf("%w: %w", changefeed.ErrUnsuitable, s.noParent())
		case errors.Is(err, zk.ErrNoNode) && path.Dir(node) != "/":
		case errors.Is(err, zk.ErrNodeExists):
			return nil
		default:
			return s.fail(ctx, "try to create", err)
		}
	}
}

func (s *Store) create(node string, data []byte) *zk.CreateRequest {
	return &zk.CreateRequest{Path: node, Data: data, Acl: s.acl}
}

func (s *Store) noParent() error {
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
		old, err := s.get(ctx, false)
		var ops []any
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, changefeed.ErrNoRecord):
			return err
		case old.Version != "": // what a deletion that did not come to its end has left
			_, version, _ := parse(old.Version)
			ops = append(ops, &zk.DeleteRequest{Path: s.path, Version: version})
		}
		ops = append(ops, s.create(s.path, data), s.create(s.mark(blank.Epoch), nil))
		_, err = s.multi(ctx, ops...)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNotEmpty):
			// Somebody else was quicker: look again.
		case errors.Is(err, zk.ErrNoNode) && len(ops) == 3:
		case errors.Is(err, zk.ErrNoNode) && s.existing:
			return s.noParent()
		case errors.Is(err, zk.ErrNoNode):
			if err := s.makeParent(ctx); err != nil {
				return s.fail(ctx, "create the parents of", err)
			}
		default:
			return s.fail(ctx, "create", err)
		}
	}
}

func (s *Store) makeParent(ctx context.Context) error {
	_, err := do(ctx, s, func() (struct{}, error) {
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
	created, version, err := parse(prev.Version)
	if err != nil {
		_, err := s.get(ctx, false)
		if err == nil {
			err = changefeed.ErrConflict
		}
		return changefeed.Record{}, err
	}
	ops := []any{s.check(prev), &zk.SetDataRequest{Path: s.path, Data: data, Version: version}}
	if next.Epoch != prev.Epoch {
		ops = append(ops, s.create(s.mark(next.Epoch), nil), &zk.DeleteRequest{Path: s.mark(prev.Epoch), Version: -1})
	}
	answers, err := s.multi(ctx, ops...)
	switch {
	case err == nil:
		stat := answers[1].Stat
		if stat.Czxid != created {
			return changefeed.Record{}, fmt.Errorf("changefeed/zookeeper: %s was deleted and created again with the same epoch", s.path)
		}
		next.Time, next.Version = written(stat)
		return next, nil
	case errors.Is(err, zk.ErrBadVersion):
		return changefeed.Record{}, changefeed.ErrConflict
	case errors.Is(err, zk.ErrNoNode): // of one epoch's mark, or of all
		if _, err := s.get(ctx, true); err != nil {
			return changefeed.Record{}, err
		}
		return changefeed.Record{}, changefeed.ErrConflict
	case errors.Is(err, zkerror.ErrConnClosed):
		// Not as fail has it: whether it was written is unknown.
		return changefeed.Record{}, fmt.Errorf("changefeed/zookeeper: write to %s: %w: %w", s.path, leaderelection.ErrConnClosed, err)
	default:
		return changefeed.Record{}, s.fail(ctx, "write to", err)
	}
}

// Read implements [changefeed.Store]. It is linearizable: it observes all writes that
// were acknowledged before it was called.
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	r, err := s.get(ctx, true)
	if err != nil {
		return changefeed.Record{}, err
	}
	return r, nil
}

// get reads the record. Where there is a znode without a mark the error is ErrNoRecord,
// and Version is the znode's.
func (s *Store) get(ctx context.Context, newest bool) (changefeed.Record, error) {
	f, err := do(ctx, s, func() (found, error) {
		if newest {
			if _, err := s.conn.Sync(s.path); err != nil {
				return found{}, err
			}
		}
		data, stat, err := request.Get(s.conn, s.path)
		return found{data: data, stat: stat}, err
	})
	if err != nil {
		return changefeed.Record{}, s.fail(ctx, "read", err)
	}
	return s.decode(f)
}

// found is a znode's answer, and what tells of its next change.
type found struct {
	data    []byte
	stat    *zk.Stat
	changes <-chan zk.Event
}

func (s *Store) decode(f found) (changefeed.Record, error) {
	r, err := codec.Decode(f.data)
	if err != nil {
		return changefeed.Record{}, fmt.Errorf("changefeed/zookeeper: %s: %w", s.path, err)
	}
	r.Time, r.Version = written(f.stat)
	if f.stat.NumChildren == 0 {
		return r, changefeed.ErrNoRecord
	}
	return r, nil
}

// written is when a state of a znode was written, and what names it.
func written(stat *zk.Stat) (time.Time, string) {
	return time.UnixMilli(stat.Mtime), fmt.Sprintf("%x.%d", stat.Czxid, stat.Version)
}

func parse(v string) (created int64, version int32, err error) {
	_, err = fmt.Sscanf(v, "%x.%d", &created, &version)
	return created, version, err
}

// mark is the child that says which epoch the record has.
func (s *Store) mark(epoch string) string { return s.path + "/epoch-" + url.PathEscape(epoch) }

func (s *Store) check(r changefeed.Record) *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: s.mark(r.Epoch), Version: -1}
}

// multi carries out a transaction. The error is that of the operation that failed.
func (s *Store) multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return do(ctx, s, func() ([]zk.MultiResponse, error) { return s.conn.Multi(ops...) })
}

// do sends f, and waits for its answer, for ctx, and for the store's end. f goes on until
// the connection answers it.
func do[T any](ctx context.Context, s *Store, f func() (T, error)) (T, error) {
	var none T
	if s.feeds.Closed() {
		return none, changefeed.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	select {
	case a := <-request.Start(f):
		if request.Closed(ctx, s.conn, a.Err) {
			return none, zkerror.ErrConnClosed
		}
		return a.Value, a.Err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-s.feeds.Done():
		return none, changefeed.ErrClosed
	}
}

// fail says what was tried on what, and gives err its place among the errors of stores.
func (s *Store) fail(ctx context.Context, doing string, err error) error {
	as := error(nil)
	switch {
	case err == nil, errors.Is(err, changefeed.ErrClosed), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err
	case errors.Is(err, zk.ErrNoNode):
		return changefeed.ErrNoRecord
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrAuthFailed), errors.Is(err, zk.ErrInvalidACL):
		as = fmt.Errorf("%w: %w: the connection's credentials need the permissions to read, write and create on the znode, and to create on its parent",
			changefeed.ErrUnsuitable, leaderelection.ErrPermission)
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		as = fmt.Errorf("%w: its parent is ephemeral; use another path", changefeed.ErrUnsuitable)
	case errors.Is(err, zkerror.ErrConnClosed), errors.Is(err, zk.ErrClosing):
		as = fmt.Errorf("%w: %w: create a new connection and a new store", changefeed.ErrUnsuitable, leaderelection.ErrConnClosed)
	}
	if as == nil {
		return fmt.Errorf("changefeed/zookeeper: %s %s: %w", doing, s.path, err)
	}
	return fmt.Errorf("changefeed/zookeeper: %s %s: %w (%w)", doing, s.path, as, err)
}

// Close implements [changefeed.Store]. A request in flight continues until the connection
// answers it.
func (s *Store) Close() error { return s.feeds.Close() }
