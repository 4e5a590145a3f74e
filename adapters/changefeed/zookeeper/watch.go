package zookeeper

import (
	"context"
	"errors"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// Subscribe implements [changefeed.Store]. Each event is the result of one read, from the
// server that the connection uses. States that were replaced before the read are skipped.
// While the connection is down the feed delivers nothing; afterwards it continues with the
// current state, also in a new session. All feeds of a record on one connection share a watch,
// and their reads.
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	return s.feeds.Subscribe(ctx)
}

// watch is a [changefeed.WatchFunc]. It reads the znode, waits until its watch fires, and reads
// again.
func (s *Store) watch(ctx context.Context, report func(changefeed.Event)) error {
	sub := session.Subscribe(s.conn, 0)
	defer s.feeds.Release(sub.Close)
	node := watch.NewReader(s.conn, sub, s.path, watch.DataOrCreation)
	for {
		found, err := node.Read(ctx)
		if err != nil {
			return s.wrapError(ctx, "watch", err)
		}
		r, err := s.decode(found.Data, found.Stat)
		switch {
		case errors.Is(err, changefeed.ErrNoRecord):
			report(changefeed.Event{Missing: true})
		case err != nil:
			return err
		default:
			report(changefeed.Event{Record: r})
		}
		if _, err := node.Wait(ctx, nil); err != nil {
			return s.wrapError(ctx, "watch", err)
		}
	}
}
