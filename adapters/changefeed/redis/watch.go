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

// Change is what [Store.Watch] tells: a message.
type Change struct {
	Channel string
	Payload string
}

// ErrMissed: the reader was too late, and messages were left out.
var ErrMissed = errors.New("redis: messages were missed; read what there is, and watch anew")

// maxWaiting is how many messages are kept for a reader.
const maxWaiting = 1000

// Watch implements [changefeed.Watcher] with the messages on one channel, that of
// [WithChannel] or the key: what PUBLISH sends there, or, for a channel such as
// "__keyspace@0__:jobs", the server where notify-keyspace-events is configured. Each is a
// [Change]. A reader who is more than a thousand late gets those, and then [ErrMissed].
// Messages that are sent while a connection is down are lost: after any error read what
// there is.
//
// It makes a connection of its own, as feeds do. In Redis Cluster it is one to the server
// that has the key, where keyspace events of other servers are not heard.
func (s *Store) Watch(ctx context.Context) (changefeed.Changes, error) {
	return s.watch(ctx, s.watched)
}

// WatchPlace implements [changefeed.PlaceWatcher]: as Watch, with the messages on the channel
// called name, which is not the record's.
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
