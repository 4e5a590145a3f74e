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

// These errors end the feeds of the record and those of Changes.
var (
	errDisconnected   = errors.New("there is no connection to a server")
	errConsumerEnded  = errors.New("the consumer has ended")
	errBucketReplaced = errors.New("the bucket was deleted or created")
)

// quietTime is how long a feed waits for a message before it reads the record. The feed must read,
// because a consumer receives nothing, and no error, if its server has dropped it or its bucket was
// deleted.
const quietTime = 3 * time.Second

// consumer is a consumer of one bucket, which is identified by its creation time.
type consumer struct {
	created int64
	stop    func() // stop ends the consumer. It is called when the bucket was replaced.
}

// stopOtherConsumers ends the consumers of earlier buckets with the same name, which would otherwise notice only after
// a quiet time that their bucket was replaced. created is the creation time of the current bucket, or 0 if it does not
// exist.
func (s *Store) stopOtherConsumers(created int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.consumers {
		if c.created != created {
			c.stop()
		}
	}
}

// consume creates a consumer that receives changes of the bucket's keys that match keys(created), where created is the
// creation time of the bucket. It calls opened when the consumer exists, and changed for each later change, until ctx
// is done or an error occurs. For each value of tick it checks that the bucket was not replaced.
func (s *Store) consume(ctx context.Context, keys func(created int64) string, opened func(), changed func(created int64, e jetstream.KeyValueEntry) error, tick <-chan time.Time) error {
	statuses := s.conn.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer s.conn.RemoveStatusListener(statuses)
	if !s.conn.IsConnected() { // statuses reports only later changes of the status
		return s.wrapError(ctx, "watch", s.connectionError())
	}
	created, err := s.creationTime(ctx)
	if errors.Is(err, errNoBucket) {
		return changefeed.ErrNoRecord
	}
	if err != nil {
		return s.wrapError(ctx, "watch", err)
	}
	kv, err := s.openBucket(ctx)
	if err != nil {
		return s.wrapError(ctx, "watch", err)
	}
	replaced := make(chan struct{})
	c := &consumer{created, sync.OnceFunc(func() { close(replaced) })}
	s.mu.Lock()
	s.consumers[c] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.consumers, c)
	}()
	watchCtx, cancel := context.WithCancel(ctx) // cancelling it removes the consumer
	defer cancel()
	watcher, err := kv.Watch(watchCtx, keys(created), jetstream.UpdatesOnly())
	if err != nil {
		return s.wrapError(ctx, "watch", err)
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
			err = s.connectionError()
		case <-replaced:
			err = errBucketReplaced
		case <-tick:
			if _, err = s.creationTime(ctx); errors.Is(err, errNoBucket) {
				err = errBucketReplaced
			}
		case e, ok := <-watcher.Updates():
			switch {
			case !ok && s.conn.IsClosed(): // the library ends consumers before it reports that it has closed the connection
				err = nats.ErrConnectionClosed
			case !ok:
				err = errConsumerEnded
			case e != nil:
				err = changed(created, e)
			}
		}
		if err != nil {
			return s.wrapError(ctx, "watch", err)
		}
	}
}

// connectionError returns the reason for which the connection is down.
func (s *Store) connectionError() error {
	if s.conn.IsClosed() {
		return nats.ErrConnectionClosed
	}
	return errDisconnected
}

// drain waits until the library's goroutine has closed the channel; until then, that goroutine may block on sending an
// update. The library then removes the consumer from the server on another goroutine, which takes up to five
// seconds if the server does not answer.
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
