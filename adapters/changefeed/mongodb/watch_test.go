package mongodb_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
)

// TestFeed_DeliversRecordsWithoutReads checks that followers do not read the record when events contain it.
func TestFeed_DeliversRecordsWithoutReads(t *testing.T) {
	server, s, r := createRecord(t, nil, mongodb.WithQuiet(time.Hour))
	f := fixture.SubscribeTo(t, s, r)
	before := server.countCommands("find")
	for range 20 {
		r = fixture.Heartbeat(t, s, r)
		fixture.AwaitRecord(t, f, r)
	}
	require.Equal(t, before, server.countCommands("find"))
	require.Equal(t, 20, server.countCommands("findAndModify"))
}

// TestFeed_SkipsOldEvents checks that a feed does not deliver an event that is older than the record that it has read.
// The feed opens its stream before it reads the record, and in between the record is deleted and created again.
func TestFeed_SkipsOldEvents(t *testing.T) {
	server, s, r := createRecord(t, nil, mongodb.WithQuiet(time.Hour))
	operator := newStore(t, connect(t, server.uri(), nil), "c")
	other := connect(t, server.uri(), nil).Database(database).Collection("c")
	second := fixture.HeldRecord()
	second.Epoch = "epoch two"
	var opened atomic.Bool
	server.setInterceptor(func(name string, _, reply bson.D) bson.D {
		if name == "aggregate" && opened.CompareAndSwap(false, true) {
			_, err := other.DeleteOne(context.Background(), bson.D{{Key: "epoch", Value: r.Epoch}})
			if err == nil {
				err = operator.Create(context.Background(), second)
			}
			if err != nil {
				t.Error(err)
			}
		}
		return reply
	})
	f, err := s.Subscribe(fixture.Context(t))
	require.NoError(t, err)
	defer f.Close()
	e := fixture.NextEvent(t, f)
	require.Equal(t, second.Epoch, e.Record.Epoch)
	last := fixture.Heartbeat(t, s, e.Record)
	for e.Record.Version != last.Version {
		e = fixture.NextEvent(t, f)
		require.False(t, e.Missing, "the feed delivers the earlier deletion")
	}
}

// TestFeed_EndsIfCollectionIsDropped checks that a feed ends when its collection is dropped, whether the stream delivers
// an event of that or only ends.
func TestFeed_EndsIfCollectionIsDropped(t *testing.T) {
	for _, withEvent := range []bool{true, false} {
		server, s, r := createRecord(t, nil, mongodb.WithQuiet(time.Hour))
		f := fixture.SubscribeTo(t, s, r)
		changes, err := s.Changes(fixture.Context(t), "")
		require.NoError(t, err)
		defer changes.Close()
		client := connect(t, server.uri(), nil)
		if withEvent {
			require.NoError(t, client.Database(database).Collection("c").Drop(fixture.Context(t)))
		} else { // The stream ends without an event and without an error.
			server.setInterceptor(func(name string, _, reply bson.D) bson.D {
				if name == "getMore" {
					return batch(0, "nextBatch", bson.A{})
				}
				return reply
			})
		}
		fixture.RequireUnknownOutcome(t, fixture.AwaitError(t, f))
		for err == nil {
			_, err = changes.Next(fixture.Context(t))
		}
		fixture.RequireUnknownOutcome(t, err)
	}
}

// TestFeed_EndsIfHistoryIsLost checks that a feed ends when its stream cannot be resumed, and that the next
// feed works.
func TestFeed_EndsIfHistoryIsLost(t *testing.T) {
	server, s, r := createRecord(t, nil)
	f := fixture.SubscribeTo(t, s, r)
	server.setInterceptor(failCommand("getMore", 286))
	fixture.RequireUnknownOutcome(t, fixture.AwaitError(t, f))
	server.setInterceptor(nil)
	r = fixture.Heartbeat(t, s, r)
	fixture.SubscribeTo(t, s, r)
}

// TestFeed_ContinuesAfterTimeoutOfClient checks that the client's Timeout does not end a stream without events.
func TestFeed_ContinuesAfterTimeoutOfClient(t *testing.T) {
	t.Parallel()
	_, s, r := createRecord(t, func(o *options.ClientOptions) { o.SetTimeout(2 * time.Second) }, mongodb.WithQuiet(time.Hour))
	f := fixture.SubscribeTo(t, s, r)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err := f.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Error(t, ctx.Err(), "the deadline is not that of the context")
	require.Eventually(t, func() bool { // Retry, because a write can take longer than two seconds on a busy machine.
		now, err := s.Heartbeat(fixture.Context(t), r, fixture.Next(r))
		if err == nil {
			r = now
		} else if now, err := s.Read(fixture.Context(t)); err == nil {
			r = now
		}
		return err == nil
	}, fixture.Patience, time.Millisecond)
	fixture.AwaitRecord(t, f, r)
}

// TestFeed_EndsIfServerIsDown checks that a feed detects an outage that the driver hides: the driver tries to
// resume the stream for 30 seconds by default, without reporting an error.
func TestFeed_EndsIfServerIsDown(t *testing.T) {
	t.Parallel()
	server, s, r := createRecord(t, func(o *options.ClientOptions) { o.SetServerSelectionTimeout(time.Minute) },
		mongodb.WithQuiet(2*time.Second))
	f := fixture.SubscribeTo(t, s, r)
	server.stop()
	start := time.Now()
	fixture.RequireUnknownOutcome(t, fixture.AwaitError(t, f))
	require.Less(t, time.Since(start), fixture.Patience)
}

// TestFeed_ReadsRecordIfStreamIsLate checks that a feed delivers writes that its stream does not deliver, or delivers too
// late, as in a sharded cluster with an idle shard. The feed must read the record, and replace the stream.
func TestFeed_ReadsRecordIfStreamIsLate(t *testing.T) {
	t.Parallel()
	server, s, r := createRecord(t, nil, mongodb.WithQuiet(2*time.Second))
	f := fixture.SubscribeTo(t, s, r)
	server.setInterceptor(func(name string, command, reply bson.D) bson.D {
		if name == "getMore" {
			time.Sleep(50 * time.Millisecond)
			return batch(command[0].Value.(int64), "nextBatch", bson.A{})
		}
		return reply
	})
	streams := server.countCommands("aggregate")
	for start := time.Now(); server.countCommands("aggregate") < streams+2; {
		require.Less(t, time.Since(start), fixture.Patience, "the stream was not replaced")
		r = fixture.Heartbeat(t, s, r)
		fixture.AwaitRecord(t, f, r) // the feed delivers r by a read
	}
	server.setInterceptor(nil)
	reads := -1
	for start := time.Now(); server.countCommands("find") != reads; { // wait until the stream alone delivers the writes
		require.Less(t, time.Since(start), fixture.Patience, "the record is still read")
		reads = server.countCommands("find")
		for range 10 {
			r = fixture.Heartbeat(t, s, r)
			fixture.AwaitRecord(t, f, r)
		}
	}
}

// TestChanges_DeliversOnlyGivenCollection checks that Changes delivers the changes of the given collection, and
// no others.
func TestChanges_DeliversOnlyGivenCollection(t *testing.T) {
	server, s, r := createRecord(t, nil)
	changes, err := s.Changes(fixture.Context(t), "another")
	require.NoError(t, err)
	defer changes.Close()
	fixture.Heartbeat(t, s, r)
	db := connect(t, server.uri(), nil).Database(database)
	for _, name := range []string{"c", "third", "another"} {
		_, err = db.Collection(name).InsertOne(fixture.Context(t), bson.D{{Key: "_id", Value: "in " + name}})
		require.NoError(t, err)
	}
	c := fixture.NextEvent(t, changes)
	id, _ := c.(bson.Raw).Lookup("documentKey", "_id").StringValueOK()
	require.Equal(t, "in another", id)
}
