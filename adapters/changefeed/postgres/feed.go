package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/notice"
)

// feed tells of the newest state of the record. Its fields belong to the listener's
// goroutine but for the box.
type feed struct {
	*listener
	box   *notice.Box[changefeed.Event]
	table uint32 // number of the table that is listened for; 0 for none
	last  notice.Last
}

// Subscribe implements [changefeed.Store]. It opens a connection, and returns when the
// connection listens and the record was read.
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	both, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	f := &feed{box: notice.Newest[changefeed.Event]()}
	f.listener = &listener{store: s, notified: f.notice, silent: f.look, ended: f.box.End}
	what := "subscribe to table " + s.name
	if f.conn, err = s.connect(both); err != nil {
		return nil, s.explain(ctx, what+": connect", err)
	}
	if err = f.look(both); err == nil {
		err = f.start()
	}
	if err != nil {
		hangUp(f.conn)
		return nil, s.explain(ctx, what, err)
	}
	return f, nil
}

// look reads the record over the feed's own connection, after having made sure that what
// is written afterwards is heard.
func (f *feed) look(ctx context.Context) error {
	var table uint32
	if err := f.conn.QueryRow(ctx, `SELECT coalesce(to_regclass($1::text)::oid::bigint, 0)`, f.store.name).Scan(&table); err != nil {
		return err
	}
	if table != f.table { // it was made, or made anew
		if _, err := f.conn.Exec(ctx, "UNLISTEN *"); err != nil {
			return err
		}
		if table != 0 {
			if err := listen(ctx, f.conn, fmt.Sprintf("changefeed_%d_%s", table, f.store.hash())); err != nil {
				return err
			}
		}
		f.table = table
	}
	r, err := f.store.read(ctx, f.conn)
	if err != nil && !errors.Is(err, changefeed.ErrNoRecord) {
		return err
	}
	if e := (changefeed.Event{Record: r, Missing: err != nil}); !f.last.Same(e) {
		f.tell(e)
	}
	return nil
}

// notice receives a notification. Any client may have sent it, so it is delivered as a hint if it
// claims to be the leader's next heartbeat, and otherwise causes a read.
func (f *feed) notice(ctx context.Context, n *pgconn.Notification) error {
	r, ok := notice.Decode(n.Payload)
	if !ok || !f.last.Heartbeat(r) {
		return f.look(ctx)
	}
	f.tell(changefeed.Event{Record: r, Hint: true})
	return nil
}

func (f *feed) tell(e changefeed.Event) {
	f.last.Set(e)
	f.box.Put(e)
}

// Next implements [changefeed.Feed].
func (f *feed) Next(ctx context.Context) (changefeed.Event, error) { return f.box.Next(ctx) }

// Close implements [changefeed.Feed].
func (f *feed) Close() error {
	f.box.End(changefeed.ErrClosed)
	f.close()
	return nil
}
