package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// Subscribe implements [changefeed.Store].
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	if s.polled != nil {
		return s.polled.Subscribe(ctx)
	}
	return s.runner.Subscribe(ctx)
}

// errTableReplaced ends a watch whose table was created, deleted or replaced.
var errTableReplaced = errors.New("the table was created, deleted or replaced")

// watch is a [store.WatchFunc] that listens to the channel of the record, whose name contains the OID of the table. It
// reports the records in notifications as hints, because any role that may connect could have sent them.
func (s *Store) watch(ctx context.Context, report func(changefeed.Event)) error {
	err := s.watchTable(ctx, report)
	if errors.Is(err, errTableReplaced) {
		return nil
	}
	return s.runner.WrapError(ctx, "feed of table "+s.table, err)
}

func (s *Store) watchTable(ctx context.Context, report func(changefeed.Event)) error {
	oid, err := s.tableOID(ctx)
	if err != nil {
		return err
	}
	return s.receiveNotifications(ctx, fmt.Sprintf("changefeed_%d_%s", oid, s.keyHash()), func() {
		report(changefeed.Event{})
	}, func(ctx context.Context) error {
		if now, err := s.tableOID(ctx); err != nil || now == oid {
			return err
		}
		return errTableReplaced
	}, func(n *pgconn.Notification) {
		report(store.DecodeMessage(n.Payload))
	})
}

// tableOID returns the OID of the table, or 0 if it does not exist.
func (s *Store) tableOID(ctx context.Context) (oid uint32, err error) {
	err = s.queryRow(ctx, `SELECT coalesce(to_regclass($1::text)::oid::bigint, 0)`, []any{s.table}, []any{&oid})
	return oid, err
}

// Change is a notification, as delivered by [Store.Changes].
type Change struct {
	Channel string
	Payload string
}

// Changes implements [changefeed.Store] with the notifications on the channel named place. If
// place is empty, Changes uses the channel of [WithChannel] or the table's name. It delivers the
// notifications that NOTIFY, or a trigger of the program with pg_notify, sends. PostgreSQL does
// not report other changes. Each is a [Change]. If a reader is more than 1000 notifications behind,
// it receives those that were kept and then [changefeed.ErrMissed]. Notifications that are sent
// while the connection is down are lost: after any error, read the current data. This trigger sends
// one for each row of jobs that changes:
//
//	CREATE FUNCTION notify_change() RETURNS trigger LANGUAGE plpgsql AS
//	  $$ BEGIN PERFORM pg_notify('elections', NEW.id::text); RETURN NULL; END $$;
//	CREATE TRIGGER notify_change AFTER INSERT OR UPDATE ON jobs
//	  FOR EACH ROW EXECUTE FUNCTION notify_change();
//
// Changes uses the connection of feeds, which all stores on the pool share.
func (s *Store) Changes(ctx context.Context, place string) (changefeed.Changes, error) {
	if s.polled != nil {
		return s.polled.Changes(ctx, place)
	}
	channel := cmp.Or(place, s.changes)
	if err := checkName("channel", channel); err != nil {
		return nil, err
	}
	return s.runner.Changes(ctx, func(ctx context.Context, report func(any)) error {
		err := s.receiveNotifications(ctx, channel, func() { report(nil) },
			func(context.Context) error { return nil }, // the listener checks its connection itself
			func(n *pgconn.Notification) { report(Change{Channel: n.Channel, Payload: n.Payload}) })
		return s.runner.WrapError(ctx, "watch channel "+channel, err)
	})
}
