package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/notice"
)

// Change is what [Store.Watch] tells: a notification.
type Change struct {
	Channel string
	Payload string
}

// ErrMissed: the reader was too late, and notifications were left out.
var ErrMissed = errors.New("postgres: notifications were missed; read what there is, and watch anew")

// maxWaiting is how many notifications are kept for a reader.
const maxWaiting = 1000

// Watch implements [changefeed.Watcher] with the notifications on one channel, that of
// [WithChannel] or the table's name: what NOTIFY, or a trigger of yours with pg_notify,
// sends there. PostgreSQL tells of no other changes. Each is a [Change]. A reader who is
// more than a thousand late gets those, and then [ErrMissed]. Notifications that are sent
// while a connection is down are lost: after any error read what there is.
//
// It makes a connection of its own, as feeds do.
func (s *Store) Watch(ctx context.Context) (changefeed.Changes, error) {
	return s.watch(ctx, s.channel)
}

// WatchPlace implements [changefeed.PlaceWatcher]: as Watch, with the notifications on the channel
// called name.
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
