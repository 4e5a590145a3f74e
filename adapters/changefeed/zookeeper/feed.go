package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
)

// Subscribe implements [changefeed.Store]. Each event is the result of one read, from the
// server that the connection uses. States that were replaced before the read are skipped.
// The feed ends when the session expires or a request fails. While the connection is down
// it delivers nothing, and continues in the same session with the current state. The
// server forgets the watch of a closed feed at the record's next change.
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	return s.feeds.Subscribe(ctx)
}

// watch is a [changefeed.WatchFunc]. It reads the znode, waits for its watch, and reads again.
func (s *Store) watch(ctx context.Context, report func(changefeed.Event)) error {
	for {
		f, err := do(ctx, s, s.look)
		if err != nil {
			return s.fail(ctx, "watch", err)
		}
		var r changefeed.Record
		err = changefeed.ErrNoRecord
		if f.stat != nil {
			r, err = s.decode(f)
		}
		switch {
		case errors.Is(err, changefeed.ErrNoRecord):
			report(changefeed.Event{Missing: true})
		case err != nil:
			return err
		default:
			report(changefeed.Event{Record: r})
		}
		select {
		case e := <-f.changes:
			if e.Err != nil {
				return s.fail(ctx, "watch", e.Err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look reads the znode and sets the watch for its next change. If the znode does not exist, the
// result has no stat.
func (s *Store) look() (found, error) {
	for {
		data, stat, changes, err := request.GetW(s.conn, s.path)
		if !errors.Is(err, zk.ErrNoNode) {
			return found{data, stat, changes}, err
		}
		exists, _, changes, err := s.conn.ExistsW(s.path)
		switch {
		case err != nil:
			return found{}, fmt.Errorf("wait for the znode: %w", err)
		case !exists:
			return found{changes: changes}, nil
		}
	}
}
