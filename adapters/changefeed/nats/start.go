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
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
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
	created, err := s.waitForBucket(ctx)
	switch {
	case errors.Is(err, errNoBucket) && s.existingBucket:
		return fmt.Errorf("%w: bucket %s does not exist: create it or omit WithExistingBucket",
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
	// No record has this revision, so nothing is written.
	err = s.retryUnanswered(ctx, func(ctx context.Context) error {
		_, err := kv.Update(ctx, s.recordKey(created), nil, math.MaxInt64)
		return err
	})
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		s.permitted.Store(true)
		return nil
	}
	return s.wrapError(ctx, "try to write", err)
}

// waitForBucket returns creationTime. It waits for JetStream, which becomes available later than a
// server that has just started.
func (s *Store) waitForBucket(ctx context.Context) (created int64, err error) {
	for limit := time.Now().Add(2 * time.Second); ; {
		err = s.retryUnanswered(ctx, func(ctx context.Context) error {
			created, err = s.creationTime(ctx)
			return err
		})
		if !isNoJetStream(err) || time.Now().After(limit) {
			break
		}
		if err := request.Pause(ctx, 50*time.Millisecond); err != nil {
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
