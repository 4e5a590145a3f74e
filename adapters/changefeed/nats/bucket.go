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

// kv is the bucket, whichever life it is in.
func (s *Store) kv(ctx context.Context) (jetstream.KeyValue, error) {
	s.mu.Lock()
	kv := s.cache
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
	s.cache = kv
	return kv, nil
}

// While several create one bucket at once, a server can say of the one that is just being
// made that its subjects overlap with those of the others' (measured with 2.9.10). After
// that the bucket is there, unless a stream of somebody else's has the subjects.
const (
	maxOverlaps  = 10
	overlapPause = 50 * time.Millisecond
)

func isOverlap(err error) bool {
	const subjectsOverlap = 10065
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == subjectsOverlap
}
