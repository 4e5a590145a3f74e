package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/notice"
)

// Change is a message, as delivered by [Store.Watch].
type Change struct {
	Channel string
	Payload string
}

// ErrMissed is returned by a feed of changes whose reader was too slow, so that messages
// were dropped. Read the current data and call [Store.Watch] again.
var ErrMissed = errors.New("redis: messages were missed; read the current data and watch again")

// maxWaiting is how many messages are kept for a reader.
const maxWaiting = 1000

// Watch implements [changefeed.Watcher] with the messages on one channel, that of
// [WithChannel] or the key: those that PUBLISH sends, or, for a channel such as
// "__keyspace@0__:jobs", those of the server if notify-keyspace-events is configured.
// Each is a [Change]. If a reader is more than 1000 messages late, it receives those and
// then [ErrMissed]. Messages that are sent while a connection is down are lost: after any
// error, read the current data.
//
// Watch opens a separate connection, as feeds do. In Redis Cluster it connects to the
// server that stores the key, which does not deliver keyspace events of other servers.
func (s *Store) Watch(ctx context.Context) (changefeed.Changes, error) {
	return s.watch(ctx, s.watched)
}

// WatchPlace implements [changefeed.PlaceWatcher]. It is like [Store.Watch] for the
// channel with the given name, which must not be the record's.
func (s *Store) WatchPlace(ctx context.Context, name string) (changefeed.Changes, error) {
	if name == "" || name == s.channel {
		return nil, fmt.Errorf("%w: channel %q is empty, or that of the record", leaderelection.ErrInvalidOption, name)
	}
	return s.watch(ctx, name)
}

func (s *Store) watch(ctx context.Context, channel string) (changefeed.Changes, error) {
	c := &changes{box: notice.Queue[any](maxWaiting, ErrMissed)}
	up := make(chan struct{})
	var once sync.Once
	c.listener = &listener{
		store: s, channel: channel, message: c.notice, ended: c.box.End,
		subscribed: func(context.Context) error { once.Do(func() { close(up) }); return nil },
		silent:     func(context.Context) error { return nil }, // the ping is enough
	}
	if err := c.open(ctx, up, c.box.Ended()); err != nil {
		return nil, err
	}
	if err := c.box.Err(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// changes are the messages on a channel.
type changes struct {
	*listener
	box *notice.Box[any]
}

func (c *changes) notice(_ context.Context, payload string) error {
	c.box.Put(Change{Channel: c.channel, Payload: payload})
	return nil
}

// Next implements [changefeed.Changes]. It returns a [Change].
func (c *changes) Next(ctx context.Context) (any, error) { return c.box.Next(ctx) }

// Close implements [changefeed.Changes].
func (c *changes) Close() error {
	c.box.End(changefeed.ErrClosed)
	c.close()
	return nil
}
