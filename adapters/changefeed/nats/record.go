package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// Create implements [changefeed.Store]. A bucket that it creates stores its data in
// files.
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	data, err := store.Encode(blank)
	if err != nil {
		return err
	}
	_, err = store.Run(ctx, s.feeds, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.createRecord(ctx, data)
	})
	return err
}

func (s *Store) createRecord(ctx context.Context, data []byte) error {
	for {
		created, err := s.createBucket(ctx)
		if err != nil {
			return err
		}
		kv, err := s.openBucket(ctx)
		if err != nil {
			return s.wrapError(ctx, "open the bucket", err)
		}
		_, err = kv.Create(ctx, s.recordKey(created), data)
		if errors.Is(err, jetstream.ErrKeyExists) {
			_, err = s.readRecord(ctx)
			if errors.Is(err, changefeed.ErrNoRecord) {
				continue
			}
			return err
		}
		if err != nil {
			return s.wrapError(ctx, "create the record", err)
		}
		// The key contains the creation time, so the record is in the current bucket only if the bucket was not
		// created again in the meantime.
		if now, err := s.creationTime(ctx); err != nil || now == created {
			return s.wrapError(ctx, "read the bucket", err)
		}
	}
}

// Heartbeat implements [changefeed.Store]. The leader of the bucket compares the revision
// of the record. Revisions restart in a bucket that is created again, so the key also contains
// the creation time of the bucket.
func (s *Store) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	data, err := store.Encode(next)
	if err != nil {
		return changefeed.Record{}, err
	}
	return store.Run(ctx, s.feeds, func(ctx context.Context) (changefeed.Record, error) {
		return s.replaceRecord(ctx, prev, next, data)
	})
}

// replaceRecord replaces prev by next, whose encoding is data.
func (s *Store) replaceRecord(ctx context.Context, prev, next changefeed.Record, data []byte) (changefeed.Record, error) {
	created, revision, err := parseVersion(prev.Version)
	if err != nil {
		return changefeed.Record{}, s.conflictError(ctx)
	}
	before := s.conn.LastError()
	kv, err := s.openBucket(ctx)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	if err == nil {
		revision, err = kv.Update(ctx, s.recordKey(created), data, revision)
	}
	switch {
	case err == nil:
		next.Version, next.Time = formatVersion(created, revision), time.Time{}
		return next, nil
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return changefeed.Record{}, s.conflictError(ctx)
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		// No server has accepted the write: the bucket does not exist, or has no leader at the moment.
		if _, missing := s.creationTime(ctx); errors.Is(missing, errNoBucket) {
			return changefeed.Record{}, changefeed.ErrNoRecord
		}
	case errors.Is(err, nats.ErrMaxPayload):
		return changefeed.Record{}, fmt.Errorf("changefeed/nats: %w: the record has %d bytes: use shorter IDs, or raise the server's max_payload (%w)",
			changefeed.ErrUnsuitable, len(data), err)
	case errors.Is(err, nats.ErrConnectionClosed):
		// wrapError would wrap ErrUnsuitable, which means that nothing was written. Here the outcome is unknown.
		return changefeed.Record{}, fmt.Errorf("changefeed/nats: write %s: %w (%w)", s.path(), leaderelection.ErrConnClosed, err)
	}
	return changefeed.Record{}, s.withReport(before, s.wrapOutcome(ctx, "write", err))
}

// conflictError returns the error of a write whose revision did not match: ErrNoRecord if the record does not exist,
// and ErrConflict otherwise.
func (s *Store) conflictError(ctx context.Context) error {
	if _, err := s.readRecord(ctx); errors.Is(err, changefeed.ErrNoRecord) {
		return changefeed.ErrNoRecord
	}
	return changefeed.ErrConflict
}

// Read implements [changefeed.Store]. The leader of the bucket answers the request.
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	before := s.conn.LastError()
	r, err := store.Run(ctx, s.feeds, s.readRecord)
	if err == nil {
		s.permitted.Store(true)
	}
	return r, s.withReport(before, err)
}

func (s *Store) readRecord(ctx context.Context) (changefeed.Record, error) {
	created, err := s.creationTime(ctx)
	if errors.Is(err, errNoBucket) {
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	if err != nil {
		return changefeed.Record{}, s.wrapError(ctx, "read the bucket", err)
	}
	return s.readRecordOf(ctx, created)
}

// readRecordOf reads the record of the bucket with the given creation time.
func (s *Store) readRecordOf(ctx context.Context, created int64) (changefeed.Record, error) {
	m, err := s.direct.GetLastMsg("KV_"+s.bucket, "$KV."+s.bucket+"."+s.recordKey(created), nats.Context(ctx))
	switch {
	case errors.Is(err, nats.ErrMsgNotFound), errors.Is(err, nats.ErrStreamNotFound):
		return changefeed.Record{}, changefeed.ErrNoRecord
	case err != nil:
		return changefeed.Record{}, s.wrapError(ctx, "read", err)
	case m.Header.Get("KV-Operation") != "": // The message only marks that the record was deleted or purged.
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	return s.decode(m.Data, created, m.Sequence)
}

func (s *Store) decode(data []byte, created int64, revision uint64) (changefeed.Record, error) {
	r, err := store.Decode(data)
	if err != nil {
		return changefeed.Record{}, fmt.Errorf("changefeed/nats: %s: %w", s.path(), err)
	}
	r.Version = formatVersion(created, revision)
	return r, nil
}

// recordKey returns the key of the record in the bucket with the given creation time.
func (s *Store) recordKey(created int64) string {
	return s.key + "." + strconv.FormatInt(created, 10)
}

// path returns the bucket and the key, for messages.
func (s *Store) path() string { return s.bucket + "/" + s.key }

func formatVersion(created int64, revision uint64) string {
	return fmt.Sprintf("%d.%d", created, revision)
}

func parseVersion(v string) (created int64, revision uint64, err error) {
	a, b, _ := strings.Cut(v, ".")
	if created, err = strconv.ParseInt(a, 10, 64); err == nil {
		revision, err = strconv.ParseUint(b, 10, 64)
	}
	if err == nil && revision == 0 { // Revision 0 is invalid: an update with it would create the key.
		err = strconv.ErrRange
	}
	return created, revision, err
}
