package nats

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// Start implements [changefeed.Store]. It checks that the bucket is suitable, and that
// the record can be read and written. If a permission is missing, Start needs a second to
// detect it, because servers report it by a separate message instead of an answer.
func (s *Store) Start(ctx context.Context) error {
	ctx, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	s.permitted.Store(false)
	created, err := s.awaitCreationTime(ctx)
	if err == nil {
		err = s.checkSpace(ctx)
	}
	switch {
	case errors.Is(err, errNoBucket) && s.withoutCreate:
		return fmt.Errorf("%w: bucket %s does not exist: create it or omit WithoutCreate",
			changefeed.ErrUnsuitable, s.bucket)
	case errors.Is(err, errNoBucket):
		return s.checkReplicas(s.replicas)
	case err != nil:
		return s.wrapError(ctx, "read the bucket", err)
	}
	if _, err := s.readRecordOf(ctx, created); err != nil && !errors.Is(err, changefeed.ErrNoRecord) {
		return err
	}
	kv, err := s.openBucket(ctx)
	if err != nil {
		return s.wrapError(ctx, "open the bucket", err)
	}
	// Test the permission to write by an update of a revision that the record cannot have, so nothing is written.
	err = s.retryUnanswered(ctx, func(ctx context.Context) error {
		_, err := kv.Update(ctx, s.recordKey(created), nil, math.MaxInt64)
		return err
	})
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		s.permitted.Store(true)
		err = nil
	}
	return s.wrapError(ctx, "try to write", err)
}

// checkSpace returns an error if the bucket has not enough space for a record.
func (s *Store) checkSpace(ctx context.Context) error {
	stream, err := s.js.Stream(ctx, "KV_"+s.bucket)
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	if limit := info.Config.MaxBytes; limit > 0 && int64(info.State.Bytes)+maxRecordSize > limit {
		return fmt.Errorf("changefeed/nats: bucket %s: %w: the bucket has %d bytes, its max_bytes is %d, and a record may need %d: raise max_bytes or delete other keys",
			s.bucket, changefeed.ErrUnsuitable, info.State.Bytes, limit, maxRecordSize)
	}
	return nil
}

// awaitCreationTime returns the time at which the bucket was created. It retries for two seconds while
// JetStream is not available, as just after the start of a server. After that the error wraps
// [changefeed.ErrUnsuitable].
func (s *Store) awaitCreationTime(ctx context.Context) (created int64, err error) {
	for end := time.Now().Add(2 * time.Second); ; {
		err = s.retryUnanswered(ctx, func(ctx context.Context) error {
			created, err = s.creationTime(ctx)
			return err
		})
		if !isNoJetStream(err) || time.Now().After(end) {
			break
		}
		if err := limit.Pause(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
	if isNoJetStream(err) {
		err = fmt.Errorf("%w: JetStream is not enabled on the server or for this account (%w)",
			changefeed.ErrUnsuitable, err)
	}
	return created, err
}

// isNoJetStream reports whether JetStream is not available.
func isNoJetStream(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
}
