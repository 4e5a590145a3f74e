package nats

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Errors that end feeds and changes.
var (
	errDisconnected = errors.New("the connection to the server was lost")
	errEnded        = errors.New("the consumer has ended")
	errBucket       = errors.New("the bucket was deleted or created")
)

// quiet is the quiet time of feeds: a consumer that its server has forgotten sends nothing, and
// neither does a consumer of a bucket that was deleted.
const quiet = 3 * time.Second

// consumer is a consumer of one life of the bucket.
type consumer struct {
	life  int64
	stale func() // stale reports that the bucket has another life.
}

// seen ends the consumers of all other lives of the bucket, because the current life, or 0 if the
// bucket does not exist, was seen. They would notice that after a quiet time only.
func (s *Store) seen(life int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.consumers {
		if c.life != life {
			c.stale()
		}
	}
}

// consume creates a consumer of later changes of the keys that name returns for the life of the
// bucket. It calls opened when the consumer exists, changed for each change, and check for each
// value of tick, until ctx is done or there is an error.
func (s *Store) consume(ctx context.Context, name func(life int64) string, opened func(), changed func(life int64, e jetstream.KeyValueEntry) error, tick <-chan time.Time) error {
	statuses := s.conn.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer s.conn.RemoveStatusListener(statuses)
	if !s.conn.IsConnected() { // The status may have changed before it was observed.
		return s.fail(ctx, "watch", s.disconnected())
	}
	life, err := s.life(ctx)
	if errors.Is(err, errNoBucket) {
		return changefeed.ErrNoRecord
	}
	if err != nil {
		return s.fail(ctx, "watch", err)
	}
	kv, err := s.kv(ctx)
	if err != nil {
		return s.fail(ctx, "watch", err)
	}
	stale := make(chan struct{})
	c := &consumer{life, sync.OnceFunc(func() { close(stale) })}
	s.mu.Lock()
	s.consumers[c] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.consumers, c)
	}()
	open, cancel := context.WithCancel(ctx) // The consumer exists as long as this context.
	defer cancel()
	watcher, err := kv.Watch(open, name(life), jetstream.UpdatesOnly())
	if err != nil {
		return s.fail(ctx, "watch", err)
	}
	defer s.feeds.Release(func() {
		cancel()
		drain(watcher.Updates())
	})
	opened()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-statuses:
			err = s.disconnected()
		case <-stale:
			err = errBucket
		case <-tick:
			if _, err = s.life(ctx); errors.Is(err, errNoBucket) {
				err = errBucket
			}
		case e, ok := <-watcher.Updates():
			switch {
			case !ok:
				err = errEnded
			case e != nil:
				err = changed(life, e)
			}
		}
		if err != nil {
			return s.fail(ctx, "watch", err)
		}
	}
}

// disconnected returns the reason why the connection is down.
func (s *Store) disconnected() error {
	if s.conn.IsClosed() {
		return nats.ErrConnectionClosed
	}
	return errDisconnected
}

// drain waits until the library's goroutine, which may be sending an update, has closed the
// channel. The library then removes the consumer from the server on another goroutine: for up to
// five seconds if the server does not answer.
func drain(updates <-chan jetstream.KeyValueEntry) {
	limit := time.After(10 * time.Second)
	for {
		select {
		case _, ok := <-updates:
			if !ok {
				return
			}
		case <-limit:
			return
		}
	}
}
