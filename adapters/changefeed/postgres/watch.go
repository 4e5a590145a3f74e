package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/notice"
)

// Change is a notification, as delivered by [Store.Watch].
type Change struct {
	Channel string
	Payload string
}

// ErrMissed is returned by a feed of changes whose reader was too slow, so that
// notifications were dropped. Read the current data and call [Store.Watch] again.
var ErrMissed = errors.New("postgres: notifications were missed; read the current data and watch again")

// maxWaiting is how many notifications are kept for a reader.
const maxWaiting = 1000

// Watch implements [changefeed.Watcher] with the notifications on one channel, that of
// [WithChannel] or the table's name: those that NOTIFY, or a trigger of the program with
// pg_notify, sends. PostgreSQL does not report other changes. Each is a [Change]. If a
// reader is more than 1000 notifications late, it receives those and then [ErrMissed].
// Notifications that are sent while the connection is down are lost: after any error,
// read the current data.
//
// Watch opens a separate connection, as feeds do.
func (s *Store) Watch(ctx context.Context) (changefeed.Changes, error) {
	return s.watch(ctx, s.channel)
}

// WatchPlace implements [changefeed.PlaceWatcher]. It is like [Store.Watch] for the
// channel with the given name.
func (s *Store) WatchPlace(ctx context.Context, name string) (changefeed.Changes, error) {
	if err := checkName("channel", name); err != nil {
		return nil, err
	}
	return s.watch(ctx, name)
}

func (s *Store) watch(ctx context.Context, channel string) (changefeed.Changes, error) {
	both, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	c := &changes{box: notice.Queue[any](maxWaiting, ErrMissed)}
	c.listener = &listener{store: s, notified: c.notice, silent: c.ping, ended: c.box.End}
	what := "watch channel " + channel
	if c.conn, err = s.connect(both); err != nil {
		return nil, s.explain(ctx, what+": connect", err)
	}
	if err = listen(both, c.conn, channel); err == nil {
		err = c.start()
	}
	if err != nil {
		hangUp(c.conn)
		return nil, s.explain(ctx, what, err)
	}
	return c, nil
}

// changes are the notifications on a channel.
type changes struct {
	*listener
	box *notice.Box[any]
}

func (c *changes) notice(_ context.Context, n *pgconn.Notification) error {
	c.box.Put(Change{Channel: n.Channel, Payload: n.Payload})
	return nil
}

func (c *changes) ping(ctx context.Context) error { return c.conn.Ping(ctx) }

// Next implements [changefeed.Changes]. It returns a [Change].
func (c *changes) Next(ctx context.Context) (any, error) { return c.box.Next(ctx) }

// Close implements [changefeed.Changes].
func (c *changes) Close() error {
	c.box.End(changefeed.ErrClosed)
	c.close()
	return nil
}
