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
	life, err := s.find(ctx)
	switch {
	case errors.Is(err, errNoBucket) && s.existing:
		return fmt.Errorf("%w: bucket %s does not exist: create it or omit WithExistingBucket",
			changefeed.ErrUnsuitable, s.bucket)
	case errors.Is(err, errNoBucket):
		return s.replicable(s.replicas)
	case err != nil:
		return s.fail(ctx, "look at the bucket", err)
	}
	if _, err := s.last(ctx, life); err != nil && !errors.Is(err, changefeed.ErrNoRecord) {
		return err
	}
	kv, err := s.kv(ctx)
	if err != nil {
		return s.fail(ctx, "open the bucket", err)
	}
	// No record has this revision, so nothing is written.
	err = s.patient(ctx, func(ctx context.Context) error {
		_, err := kv.Update(ctx, s.name(life), nil, math.MaxInt64)
		return err
	})
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		s.permitted.Store(true)
		return nil
	}
	return s.fail(ctx, "try to write", err)
}

// find is life, for a server that may have started just now: JetStream answers later than
// the server.
func (s *Store) find(ctx context.Context) (life int64, err error) {
	for end := time.Now().Add(2 * time.Second); ; {
		err = s.patient(ctx, func(ctx context.Context) error {
			life, err = s.life(ctx)
			return err
		})
		if !missing(err) || time.Now().After(end) {
			break
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	if missing(err) {
		err = fmt.Errorf("%w: JetStream is not enabled on the server or for this account (%w)",
			changefeed.ErrUnsuitable, err)
	}
	return life, err
}

func missing(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
}
