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
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/codec"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
)

// Create implements [changefeed.Store]. A bucket that it creates stores its data in
// files.
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
	for overlaps := 0; ; {
		var life int64
		err := s.patient(ctx, func(ctx context.Context) (err error) {
			life, err = s.life(ctx)
			return err
		})
		if errors.Is(err, errNoBucket) {
			if err := s.replicable(s.replicas); err != nil {
				return err
			}
			if s.existing {
				return fmt.Errorf("%w: bucket %s does not exist: create it or omit WithExistingBucket",
					changefeed.ErrNoRecord, s.bucket)
			}
			err = s.patient(ctx, func(ctx context.Context) error {
				_, err := s.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
					Bucket: s.bucket, Replicas: s.replicas, Storage: jetstream.FileStorage,
					Description: "Records of leader elections",
				})
				return err
			})
			switch {
			case err == nil, errors.Is(err, jetstream.ErrBucketExists):
			case isOverlap(err) && overlaps < maxOverlaps:
				overlaps++
				if err := request.Pause(ctx, overlapPause); err != nil {
					return s.fail(ctx, "create the bucket", err)
				}
			default:
				return s.fail(ctx, "create the bucket", err)
			}
			continue
		}
		if err != nil {
			return s.fail(ctx, "look at the bucket", err)
		}
		kv, err := s.kv(ctx)
		if err != nil {
			return s.fail(ctx, "open the bucket", err)
		}
		_, err = kv.Create(ctx, s.name(life), data)
		if errors.Is(err, jetstream.ErrKeyExists) {
			_, err = s.read(ctx)
			if errors.Is(err, changefeed.ErrNoRecord) {
				continue
			}
			return err
		}
		if err != nil {
			return s.fail(ctx, "create the record", err)
		}
		// A bucket that was made anew meanwhile has another life, in which this is no record.
		if now, err := s.life(ctx); err != nil || now == life {
			return s.fail(ctx, "look at the bucket", err)
		}
	}
}

// Heartbeat implements [changefeed.Store]. The leader of the bucket compares the revision
// of the record. The key contains the creation time of the bucket, because revisions
// restart in a bucket that was created again.
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
	life, revision, err := parse(prev.Version)
	if err != nil {
		return changefeed.Record{}, s.another(ctx)
	}
	kv, err := s.kv(ctx)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	if err == nil {
		revision, err = kv.Update(ctx, s.name(life), data, revision)
	}
	switch {
	case err == nil:
		next.Version, next.Time = version(life, revision), time.Time{}
		return next, nil
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return changefeed.Record{}, s.another(ctx)
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		// There is no bucket, or it has no leader now. Nobody has taken the write.
		if _, gone := s.life(ctx); errors.Is(gone, errNoBucket) {
			return changefeed.Record{}, changefeed.ErrNoRecord
		}
	case errors.Is(err, nats.ErrMaxPayload):
		return changefeed.Record{}, fmt.Errorf("changefeed/nats: %w: the record has %d bytes: use shorter IDs, or raise the server's max_payload (%w)",
			changefeed.ErrUnsuitable, len(data), err)
	case errors.Is(err, nats.ErrConnectionClosed):
		// Not as fail has it: whether it was written is unknown.
		return changefeed.Record{}, fmt.Errorf("changefeed/nats: write %s: %w (%w)", s.where(), leaderelection.ErrConnClosed, err)
	}
	return changefeed.Record{}, s.outcome(ctx, "write", err)
}

// another says what there is instead of the record that was to be replaced.
func (s *Store) another(ctx context.Context) error {
	if _, err := s.read(ctx); errors.Is(err, changefeed.ErrNoRecord) {
		return changefeed.ErrNoRecord
	}
	return changefeed.ErrConflict
}

// Read implements [changefeed.Store]. The leader of the bucket answers it.
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	ctx, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return changefeed.Record{}, err
	}
	defer end()
	r, err := s.read(ctx)
	if err == nil {
		s.permitted.Store(true)
	}
	return r, err
}

func (s *Store) read(ctx context.Context) (changefeed.Record, error) {
	life, err := s.life(ctx)
	if errors.Is(err, errNoBucket) {
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	if err != nil {
		return changefeed.Record{}, s.fail(ctx, "look at the bucket", err)
	}
	return s.last(ctx, life)
}

// last reads the newest state of the record in a life of the bucket.
func (s *Store) last(ctx context.Context, life int64) (changefeed.Record, error) {
	m, err := s.direct.GetLastMsg("KV_"+s.bucket, "$KV."+s.bucket+"."+s.name(life), nats.Context(ctx))
	switch {
	case errors.Is(err, nats.ErrMsgNotFound), errors.Is(err, nats.ErrStreamNotFound):
		return changefeed.Record{}, changefeed.ErrNoRecord
	case err != nil:
		return changefeed.Record{}, s.fail(ctx, "read", err)
	case m.Header.Get("KV-Operation") != "": // deleted, or purged
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	return s.decode(m.Data, life, m.Sequence)
}

func (s *Store) decode(data []byte, life int64, revision uint64) (changefeed.Record, error) {
	r, err := codec.Decode(data)
	if err != nil {
		return changefeed.Record{}, fmt.Errorf("changefeed/nats: %s: %w", s.where(), err)
	}
	r.Version = version(life, revision)
	return r, nil
}

// name is the key of the record in a life of the bucket.
func (s *Store) name(life int64) string { return s.key + "." + strconv.FormatInt(life, 10) }

func (s *Store) where() string { return s.bucket + "/" + s.key }

func version(life int64, revision uint64) string { return fmt.Sprintf("%d.%d", life, revision) }

func parse(v string) (life int64, revision uint64, err error) {
	a, b, _ := strings.Cut(v, ".")
	if life, err = strconv.ParseInt(a, 10, 64); err == nil {
		revision, err = strconv.ParseUint(b, 10, 64)
	}
	if err == nil && revision == 0 { // which would stand for a key that does not exist
		err = strconv.ErrRange
	}
	return life, revision, err
}
