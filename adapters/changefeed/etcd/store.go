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
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/operation"
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
	s.feeds = changefeed.NewFeeds(s.Read, s.watch, quietTime)
	return s, nil
}

// epochKey returns the key that contains the epoch of the record.
func (s *Store) epochKey() string { return s.key + "/epoch" }

// Start implements [changefeed.Store]. It checks that the record can be read and written.
func (s *Store) Start(ctx context.Context) error {
	ctx, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, err := s.readRecord(ctx); err != nil && !errors.Is(err, changefeed.ErrNoRecord) {
		return err
	}
	// The condition never holds, but the server checks the permissions of the writes.
	_, err = s.client.Txn(ctx).If(clientv3.Compare(clientv3.Version(s.key), "<", 0)).
		Then(clientv3.OpPut(s.key, ""), clientv3.OpPut(s.epochKey(), "")).Commit()
	return s.wrapError(ctx, "try to write", err)
}

// Create implements [changefeed.Store].
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	ctx, data, end, err := operation.BeginWrite(ctx, s.feeds, blank)
	if err != nil {
		return err
	}
	defer end()
	for {
		old, err := s.readRecord(ctx)
		if !errors.Is(err, changefeed.ErrNoRecord) {
			return err
		}
		conditions := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.key), "=", 0)}
		if old.Version != "" { // A deletion was interrupted after the epoch key was deleted.
			revision, _ := parseVersion(old.Version)
			conditions = []clientv3.Cmp{
				clientv3.Compare(clientv3.ModRevision(s.key), "=", revision),
				clientv3.Compare(clientv3.CreateRevision(s.epochKey()), "=", 0),
			}
		}
		response, err := s.client.Txn(ctx).If(conditions...).
			Then(clientv3.OpPut(s.key, string(data)), clientv3.OpPut(s.epochKey(), blank.Epoch)).Commit()
		if err != nil {
			return s.wrapError(ctx, "create", err)
		}
		if response.Succeeded {
			return nil
		} // Otherwise another client was faster: read again.
	}
}

// Heartbeat implements [changefeed.Store].
func (s *Store) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	ctx, data, end, err := operation.BeginWrite(ctx, s.feeds, next)
	if err != nil {
		return changefeed.Record{}, err
	}
	defer end()
	revision, err := parseVersion(prev.Version)
	if err != nil {
		revision = -1 // No key has this revision.
	}
	puts := []clientv3.Op{clientv3.OpPut(s.key, string(data))}
	if next.Epoch != prev.Epoch {
		puts = append(puts, clientv3.OpPut(s.epochKey(), next.Epoch))
	}
	response, err := s.client.Txn(ctx).If(
		clientv3.Compare(clientv3.ModRevision(s.key), "=", revision),
		clientv3.Compare(clientv3.Value(s.epochKey()), "=", prev.Epoch),
	).Then(puts...).Else(s.gets()...).Commit()
	switch {
	case err != nil && s.client.Ctx().Err() != nil:
		// wrapError would wrap ErrUnsuitable, but it is unknown whether the record was written.
		return changefeed.Record{}, fmt.Errorf("changefeed/etcd: write %s: %w (%w)", s.key, leaderelection.ErrConnClosed, err)
	case err != nil:
		return changefeed.Record{}, s.wrapError(ctx, "write", err)
	case !response.Succeeded:
		if _, err := s.decodeGets(response); errors.Is(err, changefeed.ErrNoRecord) {
			return changefeed.Record{}, changefeed.ErrNoRecord
		}
		return changefeed.Record{}, changefeed.ErrConflict
	}
	next.Version, next.Time = formatVersion(response.Header.Revision), time.Time{}
	return next, nil
}

// Read implements [changefeed.Store]. It is linearizable: it observes all writes that
// were acknowledged before it was called.
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	return operation.Read(ctx, s.feeds, s.readRecord)
}

// readRecord reads the record. If the key exists without an epoch key, readRecord returns the record
// together with ErrNoRecord.
func (s *Store) readRecord(ctx context.Context) (changefeed.Record, error) {
	response, err := s.client.Txn(ctx).Then(s.gets()...).Commit()
	if err != nil {
		return changefeed.Record{}, s.wrapError(ctx, "read", err)
	}
	return s.decodeGets(response)
}

// gets returns the operations that read the record and its epoch key.
func (s *Store) gets() []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(s.key), clientv3.OpGet(s.epochKey())}
}

// decodeGets returns the record, given the response to gets.
func (s *Store) decodeGets(response *clientv3.TxnResponse) (changefeed.Record, error) {
	record, epoch := response.Responses[0].GetResponseRange().Kvs, response.Responses[1].GetResponseRange().Kvs
	if len(record) == 0 {
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	r, err := s.decode(record[0])
	if err == nil && len(epoch) == 0 {
		err = changefeed.ErrNoRecord
	}
	return r, err
}

// decode returns the record in a key.
func (s *Store) decode(kv *mvccpb.KeyValue) (changefeed.Record, error) {
	r, err := codec.Decode(kv.Value)
	if err != nil {
		return changefeed.Record{}, fmt.Errorf("changefeed/etcd: %s: %w", s.key, err)
	}
	r.Version = formatVersion(kv.ModRevision)
	return r, nil
}

func formatVersion(revision int64) string { return strconv.FormatInt(revision, 10) }

func parseVersion(version string) (int64, error) { return strconv.ParseInt(version, 10, 64) }

// wrapError adds the operation to err, and wraps it with the corresponding error of package changefeed.
func (s *Store) wrapError(ctx context.Context, operation string, err error) error {
	return s.feeds.WrapError(ctx, fmt.Sprintf("changefeed/etcd: %s %s", operation, s.key), err, s.meaningOf)
}

// meaningOf returns the error of package changefeed that corresponds to an error of the client, or
// nil.
func (s *Store) meaningOf(err error) error {
	switch {
	case s.client.Ctx().Err() != nil:
		return fmt.Errorf("%w: %w: create a new client and a new store", changefeed.ErrUnsuitable, leaderelection.ErrConnClosed)
	case errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrAuthFailed):
		return fmt.Errorf("%w: %w: the client's user needs to read and write %s and %s",
			changefeed.ErrUnsuitable, leaderelection.ErrPermission, s.key, s.epochKey())
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("%w: use shorter IDs, or raise the servers' --max-request-bytes", changefeed.ErrUnsuitable)
	}
	return nil
}

// Close implements [changefeed.Store].
func (s *Store) Close() error { return s.feeds.Close() }
