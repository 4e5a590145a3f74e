package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// errNoBucket: there is no such bucket.
var errNoBucket = errors.New("bucket does not exist")

// life is when the bucket was made, which tells it from one of the same name that was
// deleted. A bucket that must not be used is [changefeed.ErrUnsuitable].
func (s *Store) life(ctx context.Context) (int64, error) {
	stream, err := s.js.Stream(ctx, "KV_"+s.bucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s.seen(0)
		return 0, errNoBucket
	}
	if err != nil {
		return 0, err
	}
	info := stream.CachedInfo()
	if why := unfit(info.Config); why != "" {
		return 0, fmt.Errorf("changefeed/nats: bucket %s: %w: %s", s.bucket, changefeed.ErrUnsuitable, why)
	}
	if err := s.replicable(info.Config.Replicas); err != nil {
		return 0, err
	}
	life := info.Created.UnixNano()
	s.seen(life)
	return life, nil
}

// replicable returns why a bucket of n servers cannot be used, and nil if it can.
func (s *Store) replicable(n int) error {
	if n < 2 {
		return nil
	}
	err := s.accepted.Check(fmt.Sprintf("bucket %s of nats at %s", s.bucket, s.conn.ConnectedUrlRedacted()), []changefeed.UnsafeSetting{{
		Name: "the number of replicas", Value: strconv.Itoa(n), Risk: changefeed.RiskFailover, Remedy: "create the bucket again with one replica",
	}})
	if err != nil || atLeast(s.release(), 2, 9, 21) {
		return err
	}
	return fmt.Errorf("changefeed/nats: bucket %s: %w: servers of release %q can acknowledge two writes to one revision of a bucket with several replicas: use one replica, or release 2.9.21 or later",
		s.bucket, changefeed.ErrUnsuitable, s.release())
}

// atLeast compares the numbers of a release; what is none is none of them.
func atLeast(release string, major, minor, patch int) bool {
	var a, b, c int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(release, "v"), "%d.%d.%d", &a, &b, &c); n < 3 {
		return false
	}
	return cmp.Or(cmp.Compare(a, major), cmp.Compare(b, minor), cmp.Compare(c, patch)) >= 0
}

// room is what a record needs at most, with IDs of the greatest length.
const room = 32 << 10

// unfit says why a stream cannot keep records, "" if it can.
func unfit(c jetstream.StreamConfig) string {
	limited := c.MaxMsgs > 0 || c.MaxBytes > 0
	switch {
	case c.MaxMsgsPerSubject < 1:
		return "it is a stream, and no bucket of keys and values"
	case c.Storage != jetstream.FileStorage:
		return "it is in memory, and lost with its servers: make it anew with file storage"
	case c.MaxAge > 0:
		return "its values expire, and with them the tokens that were given: make it anew without TTL"
	case c.Retention != jetstream.LimitsPolicy, c.Discard == jetstream.DiscardOld && limited:
		return "it discards values when it is full: make it anew as a bucket"
	case c.Mirror != nil:
		return "it is a mirror: use the bucket that it mirrors"
	case c.Sealed:
		return "it is sealed"
	case c.MaxMsgSize > 0 && c.MaxMsgSize < room:
		return fmt.Sprintf("its values have %d bytes at most, and a record may need %d", c.MaxMsgSize, room)
	}
	return ""
}

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

// patient calls f again and again until it has an answer, or the server has said meanwhile
// that something is not permitted. Servers of a cluster that have no leader yet leave
// requests unanswered.
func (s *Store) patient(ctx context.Context, f func(context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		err := f(try)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil || s.refused() != nil {
			return err
		}
	}
}

// refused is what the server has said last about permissions, if that concerns this store.
func (s *Store) refused() error {
	err := s.conn.LastError()
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	for _, subject := range []string{"$KV." + s.bucket + ".", "KV_" + s.bucket, "_INBOX."} {
		if strings.Contains(err.Error(), strings.ToLower(subject)) || strings.Contains(err.Error(), subject) {
			return err
		}
	}
	return nil
}

// fail says what was tried on what, and gives err its place among the errors of stores. It
// is not for the outcome of a write.
func (s *Store) fail(ctx context.Context, doing string, err error) error {
	refused := s.refused()
	switch {
	case err == nil, errors.Is(err, changefeed.ErrUnsuitable):
		return err
	case s.feeds.Closed():
		return changefeed.ErrClosed
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("changefeed/nats: %s %s: %w: %w: create a new connection and a new store (%w)",
			doing, s.where(), changefeed.ErrUnsuitable, leaderelection.ErrConnClosed, err)
	case errors.Is(err, context.DeadlineExceeded) && refused != nil && !s.permitted.Load():
		return fmt.Errorf("changefeed/nats: %s %s: %w: %w: the documentation of the package lists the required permissions (%w)",
			doing, s.where(), changefeed.ErrUnsuitable, leaderelection.ErrPermission, refused)
	}
	return s.outcome(ctx, doing, err)
}

// outcome says no more than that it did not succeed.
func (s *Store) outcome(ctx context.Context, doing string, err error) error {
	if s.feeds.Closed() {
		return changefeed.ErrClosed
	}
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	return fmt.Errorf("changefeed/nats: %s %s: %w", doing, s.where(), err)
}
