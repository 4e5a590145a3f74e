package redis

import (
	"cmp"
	"context"
	"fmt"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// Change is a message, as delivered by [Store.Changes].
type Change struct {
	Channel string
	Payload string
}

// Changes implements [changefeed.Store] with the messages on the channel named place, which must
// not be the channel of the record. If place is empty, Changes uses the channel of [WithChannel]
// or the key. It delivers the messages that PUBLISH sends, or, for a channel such as
// "__keyspace@0__:jobs", the messages of the server if notify-keyspace-events is configured. Each
// is a [Change]. If a reader is more than 1000 messages behind, it receives those that were kept
// and then [changefeed.ErrMissed]. Messages that are sent while a connection is down are lost:
// after any error, read the current data.
//
// Changes opens a separate connection, as feeds do. In Redis Cluster it connects to the
// server that stores the key, which does not deliver keyspace events of other servers.
func (s *Store) Changes(ctx context.Context, place string) (changefeed.Changes, error) {
	channel := cmp.Or(place, s.changes)
	if channel == s.channel {
		return nil, fmt.Errorf("%w: channel %q is the channel of the record: use another", leaderelection.ErrInvalid, channel)
	}
	return s.runner.Changes(ctx, func(ctx context.Context, report func(any)) error {
		return s.listen(ctx, channel, func() { report(nil) }, func(payload string) {
			report(Change{Channel: channel, Payload: payload})
		})
	})
}

// Subscribe implements [changefeed.Store].
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	return s.runner.Subscribe(ctx)
}

// watch is a [store.WatchFunc] that reports the records in messages as hints, because other clients could have sent
// the messages.
func (s *Store) watch(ctx context.Context, report func(changefeed.Event)) error {
	return s.listen(ctx, s.channel, func() { report(changefeed.Event{}) }, func(payload string) {
		report(store.DecodeMessage(payload))
	})
}
