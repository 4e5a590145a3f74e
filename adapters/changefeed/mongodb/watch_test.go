package mongodb_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
)

// TestFollowersReadNothing: the feed carries the record.
func TestFollowersReadNothing(t *testing.T) {
	server, s, r := made(t, nil, mongodb.WithQuiet(time.Hour))
	f := follow(t, s, r)
	before := server.count("find")
	for range 20 {
		r = beat(t, s, r)
		tells(t, f, r)
	}
	require.Equal(t, before, server.count("find"))
	require.Equal(t, 20, server.count("findAndModify"))
}

// TestTrapOldEvents: a stream is opened before the record is read, so it also tells of what
// came before that. Here the record is deleted and made anew in between.
func TestTrapOldEvents(t *testing.T) {
	server, s, r := made(t, nil, mongodb.WithQuiet(time.Hour))
	operator := newStore(t, connect(t, server.uri(), nil), "c")
	other := connect(t, server.uri(), nil).Database(database).Collection("c")
	renewed := blank
	renewed.Epoch = "epoch two"
	var opened atomic.Bool
	server.on(func(name string, _, answer bson.D) bson.D {
		if name == "aggregate" && opened.CompareAndSwap(false, true) {
			_, err := other.DeleteOne(context.Background(), bson.D{{Key: "epoch", Value: r.Epoch}})
			if err == nil {
				err = operator.Create(context.Background(), renewed)
			}
			if err != nil {
				t.Error(err)
			}
		}
		return answer
	})
	f, err := s.Subscribe(bounded(t))
	require.NoError(t, err)
	defer f.Close()
	e, err := f.Next(bounded(t))
	require.NoError(t, err)
	require.Equal(t, renewed.Epoch, e.Record.Epoch)
	last := beat(t, s, e.Record)
	for e.Record.Version != last.Version {
		e, err = f.Next(bounded(t))
		require.NoError(t, err)
		require.False(t, e.Missing, "a deletion of before was told")
	}
}

// TestTrapDropped: the collection's end is that of feeds, and not silence.
func TestTrapDropped(t *testing.T) {
	for _, told := range []bool{true, false} {
		server, s, r := made(t, nil, mongodb.WithQuiet(time.Hour))
		f := follow(t, s, r)
		changes, err := s.Changes(bounded(t), "")
		require.NoError(t, err)
		defer changes.Close()
		client := connect(t, server.uri(), nil)
		if told {
			require.NoError(t, client.Database(database).Collection("c").Drop(bounded(t)))
		} else { // the stream ends, without an event and without an error
			server.on(func(name string, _, answer bson.D) bson.D {
				if name == "getMore" {
					return batch(0, "nextBatch", bson.A{})
				}
				return answer
			})
		}
		unknown(t, ends(t, f))
		for err == nil {
			_, err = changes.Next(bounded(t))
		}
		unknown(t, err)
	}
}

// TestTrapHistoryLost: a stream that cannot be resumed is replaced by another.
func TestTrapHistoryLost(t *testing.T) {
	server, s, r := made(t, nil)
	f := follow(t, s, r)
	server.on(failing("getMore", 286))
	unknown(t, ends(t, f))
	server.on(nil)
	r = beat(t, s, r)
	follow(t, s, r)
}

// TestTrapClientTimeout: the client's Timeout would end streams in which nothing happens.
func TestTrapClientTimeout(t *testing.T) {
	_, s, r := made(t, func(o *options.ClientOptions) { o.SetTimeout(2 * time.Second) }, mongodb.WithQuiet(time.Hour))
	f := follow(t, s, r)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err := f.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Error(t, ctx.Err(), "it was the context's own deadline")
	require.Eventually(t, func() bool { // two seconds may be too short for a write here
		now, err := s.Heartbeat(bounded(t), r, next(r))
		if err == nil {
			r = now
		} else if now, err := s.Read(bounded(t)); err == nil {
			r = now
		}
		return err == nil
	}, patience, time.Millisecond)
	tells(t, f, r)
}

// TestTrapHiddenOutage: the driver tries for 30 seconds to resume a stream, and says
// nothing meanwhile.
func TestTrapHiddenOutage(t *testing.T) {
	server, s, r := made(t, func(o *options.ClientOptions) { o.SetServerSelectionTimeout(time.Minute) },
		mongodb.WithQuiet(2*time.Second))
	f := follow(t, s, r)
	server.stop()
	begin := time.Now()
	unknown(t, ends(t, f))
	require.Less(t, time.Since(begin), patience)
}

// TestTrapSilentStream: the feed of a stream that does not tell of writes, or tells of them
// late as in a sharded cluster with an idle shard, tells of them by reads. It does not end,
// but replaces the stream.
func TestTrapSilentStream(t *testing.T) {
	server, s, r := made(t, nil, mongodb.WithQuiet(2*time.Second))
	f := follow(t, s, r)
	server.on(func(name string, command, answer bson.D) bson.D {
		if name == "getMore" {
			time.Sleep(50 * time.Millisecond)
			return batch(command[0].Value.(int64), "nextBatch", bson.A{})
		}
		return answer
	})
	streams := server.count("aggregate")
	for begin := time.Now(); server.count("aggregate") < streams+2; {
		require.Less(t, time.Since(begin), patience, "the stream was not replaced")
		r = beat(t, s, r)
		tells(t, f, r) // by a read
	}
	server.on(nil)
	reads := -1
	for begin := time.Now(); server.count("find") != reads; { // by the stream alone
		require.Less(t, time.Since(begin), patience, "the record is still read")
		reads = server.count("find")
		for range 10 {
			r = beat(t, s, r)
			tells(t, f, r)
		}
	}
}

// TestChangesOfPlace: Changes delivers the changes of the given place, and no others.
func TestChangesOfPlace(t *testing.T) {
	server, s, r := made(t, nil)
	changes, err := s.Changes(bounded(t), "another")
	require.NoError(t, err)
	defer changes.Close()
	beat(t, s, r)
	db := connect(t, server.uri(), nil).Database(database)
	for _, name := range []string{"c", "third", "another"} {
		_, err = db.Collection(name).InsertOne(bounded(t), bson.D{{Key: "_id", Value: "in " + name}})
		require.NoError(t, err)
	}
	c, err := changes.Next(bounded(t))
	require.NoError(t, err)
	id, _ := c.(bson.Raw).Lookup("documentKey", "_id").StringValueOK()
	require.Equal(t, "in another", id)
}
