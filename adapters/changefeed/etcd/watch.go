package etcd

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// quietTime is the quiet time of feeds. A watch does not detect that its connection is broken while
// nothing is sent.
const quietTime = 3 * time.Second

// errWatchEnded is returned if the client ends a watch without an error.
var errWatchEnded = errors.New("the server has ended the watch")

// Subscribe implements [changefeed.Store]. The feed delivers the states of the record,
// but skips states that were replaced before they were read. It ends with an error if the
// server that it watches has lost contact with the other servers. It delivers nothing
// while the client connects to another server, and ends with an error if that takes more
// than three seconds.
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	return s.feeds.Subscribe(ctx)
}

// watch is a [changefeed.WatchFunc]. If the client cannot resume the watch because its revision
// was compacted, watch returns nil, so that the feed watches again and reads.
func (s *Store) watch(ctx context.Context, report func(changefeed.Event)) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	defer context.AfterFunc(s.client.Ctx(), cancel)()
	for response := range s.client.Watch(ctx, s.key, clientv3.WithCreatedNotify()) {
		switch {
		case response.CompactRevision != 0:
			return nil
		case response.Err() != nil:
			return s.wrapError(ctx, "watch", response.Err())
		case response.Created:
			report(changefeed.Event{})
		}
		for _, e := range response.Events {
			if e.Type == clientv3.EventTypeDelete {
				report(changefeed.Event{Missing: true})
				continue
			}
			r, err := s.decode(e.Kv)
			if err != nil {
				return err
			}
			report(changefeed.Event{Record: r})
		}
	}
	return s.wrapError(ctx, "watch", errWatchEnded)
}
