package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// errNoBucket is returned if the bucket does not exist.
var errNoBucket = errors.New("bucket does not exist")

// creationTime returns when the bucket was created, which distinguishes it from an earlier bucket with the same name.
// The error wraps [changefeed.ErrUnsuitable] if the bucket must not be used.
func (s *Store) creationTime(ctx context.Context) (int64, error) {
	stream, err := s.js.Stream(ctx, "KV_"+s.bucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s.stopOtherConsumers(0)
		return 0, errNoBucket
	}
	if err != nil {
		return 0, err
	}
	info := stream.CachedInfo()
	if reason := describeUnsuitable(info.Config); reason != "" {
		return 0, fmt.Errorf("changefeed/nats: bucket %s: %w: %s", s.bucket, changefeed.ErrUnsuitable, reason)
	}
	if err := s.checkReplicas(info.Config.Replicas); err != nil {
		return 0, err
	}
	created := info.Created.UnixNano()
	s.stopOtherConsumers(created)
	return created, nil
}

// checkReplicas returns an error if a bucket with n replicas is unsafe and the user has not accepted the risk.
func (s *Store) checkReplicas(n int) error {
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

// atLeast reports whether release, a version number of the server, is at least major.minor.patch. It returns false if
// release is not a version number.
func atLeast(release string, major, minor, patch int) bool {
	var a, b, c int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(release, "v"), "%d.%d.%d", &a, &b, &c); n < 3 {
		return false
	}
	return cmp.Or(cmp.Compare(a, major), cmp.Compare(b, minor), cmp.Compare(c, patch)) >= 0
}

// maxRecordSize is the size of a record with IDs of the greatest length, in bytes.
const maxRecordSize = 32 << 10

// describeUnsuitable returns the reason for which a stream cannot store records, or "" if it can.
func describeUnsuitable(c jetstream.StreamConfig) string {
	limited := c.MaxMsgs > 0 || c.MaxBytes > 0
	switch {
	case c.MaxMsgsPerSubject < 1:
		return "the stream is not a bucket of keys and values"
	case c.Storage != jetstream.FileStorage:
		return "the bucket is in memory, and lost with its servers: create it again with file storage"
	case c.MaxAge > 0:
		return "the values of the bucket expire, and with them the tokens that were issued: create it again without a TTL"
	case c.Retention != jetstream.LimitsPolicy, c.Discard == jetstream.DiscardOld && limited:
		return "the bucket discards values when it is full: create it again as a bucket"
	case c.Mirror != nil:
		return "the bucket is a mirror: use the bucket that it mirrors"
	case c.Sealed:
		return "the bucket is sealed and accepts no writes: use another bucket"
	case c.MaxMsgSize > 0 && c.MaxMsgSize < maxRecordSize:
		return fmt.Sprintf("the values of the bucket have %d bytes at most, and a record may need %d", c.MaxMsgSize, maxRecordSize)
	}
	return ""
}

// openBucket returns an object for the bucket. The object can also be used after the bucket was deleted and created
// again.
func (s *Store) openBucket(ctx context.Context) (jetstream.KeyValue, error) {
	s.mu.Lock()
	kv := s.opened
	s.mu.Unlock()
	if kv != nil {
		return kv, nil
	}
	kv, err := s.js.KeyValue(ctx, s.bucket)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = kv
	return kv, nil
}

// If several clients create the same bucket at the same time, a server can return the error that the subjects of
// the bucket overlap with those of another stream (observed with 2.9.10). Usually that stream is the bucket, which
// then exists; otherwise another stream really uses the subjects.
const (
	maxOverlaps  = 10
	overlapPause = 50 * time.Millisecond
)

// isSubjectsOverlap reports whether err means that a stream was not created because another stream has its subjects.
func isSubjectsOverlap(err error) bool {
	const subjectsOverlap = 10065
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == subjectsOverlap
}

// createBucket creates the bucket if it does not exist, and returns its creation time.
func (s *Store) createBucket(ctx context.Context) (int64, error) {
	for overlaps := 0; ; {
		var created int64
		err := s.retryUnanswered(ctx, func(ctx context.Context) (err error) {
			created, err = s.creationTime(ctx)
			return err
		})
		if !errors.Is(err, errNoBucket) {
			return created, s.wrapError(ctx, "read the bucket", err)
		}
		if err := s.checkReplicas(s.replicas); err != nil {
			return 0, err
		}
		if s.withoutCreate {
			return 0, fmt.Errorf("%w: bucket %s does not exist: create it or omit WithoutCreate",
				changefeed.ErrNoRecord, s.bucket)
		}
		err = s.retryUnanswered(ctx, func(ctx context.Context) error {
			_, err := s.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
				Bucket: s.bucket, Replicas: s.replicas, Storage: jetstream.FileStorage,
				Description: "Records of leader elections",
			})
			return err
		})
		switch {
		case err == nil, errors.Is(err, jetstream.ErrBucketExists):
			continue
		case isSubjectsOverlap(err) && overlaps < maxOverlaps:
			overlaps++
			err = limit.Pause(ctx, overlapPause)
		}
		if err != nil {
			return 0, s.wrapError(ctx, "create the bucket", err)
		}
	}
}
