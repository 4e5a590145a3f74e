package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/codec"
)

// Store stores the record of one election in a key. It implements [changefeed.Store]. Its
// methods may be called from any goroutine.
type Store struct {
	changefeed.NoChanges

	client *clientv3.Client
	key    string
	feeds  *changefeed.Feeds
}

var _ changefeed.Store = (*Store)(nil)

// New creates a store of the record under key. The caller keeps ownership of client,
// which may be shared; Close does not close it. New sends no request. Errors:
// [leaderelection.ErrNilConn], [leaderelection.ErrInvalidOption].
func New(client *clientv3.Client, key string) (*Store, error) {
	if client == nil {
		return nil, leaderelection.ErrNilConn
	}
	if key == "" || strings.HasSuffix(key, "/") {
		return nil, fmt.Errorf("%w: key %q: must not be empty or end in a slash", leaderelection.ErrInvalidOption, key)
	}
	s := &Store{client: client, key: key}
	s.feeds = changefeed.NewFeeds(s.Read, s.watch, quiet)
	return s, nil
}

// mark is the key of the record's epoch.
func (s *Store) mark() string { return s.key + "/epoch" }

// Start implements [changefeed.Store]. It checks that the record can be read and written.
func (s *Store) Start(ctx context.Context) error {
	ctx, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, err := s.read(ctx); err != nil && !errors.Is(err, changefeed.ErrNoRecord) {
		return err
	}
	// Never carried out; permissions are looked at all the same.
	_, err = s.client.Txn(ctx).If(clientv3.Compare(clientv3.Version(s.key), "<", 0)).
		Then(clientv3.OpPut(s.key, ""), clientv3.OpPut(s.mark(), "")).Commit()
	return s.fail(ctx, "try to write", err)
}

// Create implements [changefeed.Store].
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	data, err := codec.Encode(blank)
	if err != nil {
		return err
	}
	ctx, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for {
		old, err := s.read(ctx)
		if !errors.Is(err, changefeed.ErrNoRecord) {
			return err
		}
		is := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.key), "=", 0)}
		if old.Version != "" { // what a deletion that did not come to its end has left
			revision, _ := parse(old.Version)
			is = []clientv3.Cmp{
				clientv3.Compare(clientv3.ModRevision(s.key), "=", revision),
				clientv3.Compare(clientv3.CreateRevision(s.mark()), "=", 0),
			}
		}
		answer, err := s.client.Txn(ctx).If(is...).
			Then(clientv3.OpPut(s.key, string(data)), clientv3.OpPut(s.mark(), blank.Epoch)).Commit()
		if err != nil {
			return s.fail(ctx, "create", err)
		}
		if answer.Succeeded {
			return nil
		} // else somebody was quicker: look again
	}
}

// Heartbeat implements [changefeed.Store].
func (s *Store) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	data, err := codec.Encode(next)
	if err != nil {
		return changefeed.Record{}, err
	}
	ctx, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return changefeed.Record{}, err
	}
	defer end()
	revision, err := parse(prev.Version)
	if err != nil {
		revision = -1 // which nothing has
	}
	puts := []clientv3.Op{clientv3.OpPut(s.key, string(data))}
	if next.Epoch != prev.Epoch {
		puts = append(puts, clientv3.OpPut(s.mark(), next.Epoch))
	}
	answer, err := s.client.Txn(ctx).If(
		clientv3.Compare(clientv3.ModRevision(s.key), "=", revision),
		clientv3.Compare(clientv3.Value(s.mark()), "=", prev.Epoch),
	).Then(puts...).Else(s.gets()...).Commit()
	switch {
	case err != nil && s.client.Ctx().Err() != nil:
		// Not as fail has it: whether it was written is unknown.
		return changefeed.Record{}, fmt.Errorf("changefeed/etcd: write %s: %w (%w)", s.key, leaderelection.ErrConnClosed, err)
	case err != nil:
		return changefeed.Record{}, s.fail(ctx, "write", err)
	case !answer.Succeeded:
		if _, err := s.decode(found(answer)); errors.Is(err, changefeed.ErrNoRecord) {
			return changefeed.Record{}, changefeed.ErrNoRecord
		}
		return changefeed.Record{}, changefeed.ErrConflict
	}
	next.Version, next.Time = strconv.FormatInt(answer.Header.Revision, 10), time.Time{}
	return next, nil
}

// Read implements [changefeed.Store]. It is linearizable: it observes all writes that
// were acknowledged before it was called.
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	ctx, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return changefeed.Record{}, err
	}
	defer end()
	r, err := s.read(ctx)
	if err != nil {
		return changefeed.Record{}, err
	}
	return r, nil
}

func (s *Store) gets() []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(s.key), clientv3.OpGet(s.mark())}
}

// read returns the record. If there is a key without a mark, the error is ErrNoRecord, and Version
// is that of the key.
func (s *Store) read(ctx context.Context) (changefeed.Record, error) {
	answer, err := s.client.Txn(ctx).Then(s.gets()...).Commit()
	if err != nil {
		return changefeed.Record{}, s.fail(ctx, "read", err)
	}
	return s.decode(found(answer))
}

// found is what gets has returned.
func found(answer *clientv3.TxnResponse) (record, mark *mvccpb.KeyValue) {
	of := func(i int) *mvccpb.KeyValue {
		if kvs := answer.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
			return kvs[0]
		}
		return nil
	}
	return of(0), of(1)
}

func (s *Store) decode(record, mark *mvccpb.KeyValue) (changefeed.Record, error) {
	if record == nil {
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	r, err := codec.Decode(record.Value)
	if err != nil {
		return changefeed.Record{}, fmt.Errorf("changefeed/etcd: %s: %w", s.key, err)
	}
	r.Version = strconv.FormatInt(record.ModRevision, 10)
	if mark == nil {
		return r, changefeed.ErrNoRecord
	}
	return r, nil
}

func parse(version string) (int64, error) { return strconv.ParseInt(version, 10, 64) }

// fail says what was tried on what, and gives err its place among the errors of stores.
func (s *Store) fail(ctx context.Context, doing string, err error) error {
	var as error
	switch {
	case err == nil:
		return nil
	case s.feeds.Closed():
		return changefeed.ErrClosed
	case s.client.Ctx().Err() != nil:
		as = fmt.Errorf("%w: %w: create a new client and a new store", changefeed.ErrUnsuitable, leaderelection.ErrConnClosed)
	case errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrAuthFailed):
		as = fmt.Errorf("%w: %w: the client's user needs to read and write %s and %s",
			changefeed.ErrUnsuitable, leaderelection.ErrPermission, s.key, s.mark())
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		as = fmt.Errorf("%w: use shorter IDs, or raise the servers' --max-request-bytes", changefeed.ErrUnsuitable)
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		as = ctx.Err()
	default:
		return fmt.Errorf("changefeed/etcd: %s %s: %w", doing, s.key, err)
	}
	return fmt.Errorf("changefeed/etcd: %s %s: %w (%w)", doing, s.key, as, err)
}

// Close implements [changefeed.Store].
func (s *Store) Close() error { return s.feeds.Close() }
