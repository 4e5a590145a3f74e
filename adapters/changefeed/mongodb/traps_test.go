package mongodb_test

// What MongoDB and its driver do that a store could stumble over, as the stand-in does it.

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
)

var blank = changefeed.Record{Epoch: "epoch", Seq: 1, TTL: time.Second}

// made is a stand-in, and a store with a record on it.
func made(t testing.TB, change func(*options.ClientOptions), opts ...mongodb.Option) (*standin, *mongodb.Store, changefeed.Record) {
	t.Helper()
	server := newStandin(t)
	s := newStore(t, connect(t, server.uri(), change), "c", opts...)
	require.NoError(t, s.Start(bounded(t)))
	require.NoError(t, s.Create(bounded(t), blank))
	r, err := s.Read(bounded(t))
	require.NoError(t, err)
	return server, s, r
}

func beat(t testing.TB, s *mongodb.Store, prev changefeed.Record) changefeed.Record {
	t.Helper()
	r, err := s.Heartbeat(bounded(t), prev, next(prev))
	require.NoError(t, err)
	return r
}

func next(r changefeed.Record) changefeed.Record {
	r.Seq++
	return r
}

// follow is a feed that has told of r.
func follow(t testing.TB, s *mongodb.Store, r changefeed.Record) changefeed.Feed {
	t.Helper()
	f, err := s.Subscribe(bounded(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	tells(t, f, r)
	return f
}

func tells(t testing.TB, f changefeed.Feed, r changefeed.Record) {
	t.Helper()
	for {
		e, err := f.Next(bounded(t))
		require.NoError(t, err)
		if e.Record.Version == r.Version {
			return
		}
	}
}

// ends waits for the feed's error.
func ends(t testing.TB, f changefeed.Feed) error {
	t.Helper()
	ctx := bounded(t)
	for {
		if _, err := f.Next(ctx); err != nil {
			require.NoError(t, ctx.Err(), "the feed has not ended")
			return err
		}
	}
}

// failing has every command of a name fail.
func failing(name string, code int) func(string, bson.D, bson.D) bson.D {
	return func(n string, _, answer bson.D) bson.D {
		if n == name {
			return failure(code, "as it was told to")
		}
		return answer
	}
}

// TestTrapStandalone: a server that is no replica set has no change streams.
func TestTrapStandalone(t *testing.T) {
	server := newStandin(t)
	s := newStore(t, connect(t, server.uri(), nil), "c")
	server.on(failing("aggregate", 40573))
	err := s.Start(bounded(t))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorContains(t, err, "replica set")
}

// TestRefusedAtStart: what can never work is told with what to do.
func TestRefusedAtStart(t *testing.T) {
	for name, c := range map[string]struct {
		command string
		code    int
		help    string
	}{
		"NoRightToWatch": {"aggregate", 13, "grant"},
		"NoRightToRead":  {"find", 13, "grant"},
		"NoRightToWrite": {"update", 13, "grant"},
		"Password":       {"aggregate", 18, "password"},
		"View":           {"aggregate", 166, "view"},
		"NoStreams":      {"aggregate", 115, "does not support change streams"},
	} {
		t.Run(name, func(t *testing.T) {
			server, s, _ := made(t, nil)
			server.on(failing(c.command, c.code))
			err := s.Start(bounded(t))
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			require.ErrorContains(t, err, c.help)
		})
	}
	t.Run("Transient", func(t *testing.T) {
		server, s, _ := made(t, nil)
		server.on(failing("find", 211))
		err := s.Start(bounded(t))
		require.Error(t, err)
		require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
	})
	t.Run("MayNotList", func(t *testing.T) {
		server, made, _ := made(t, nil)
		require.NoError(t, made.Close())
		s := newStore(t, connect(t, server.uri(), nil), "c", mongodb.WithExistingCollection())
		server.on(failing("listCollections", 13))
		require.NoError(t, s.Start(bounded(t)))
		require.NoError(t, s.Create(bounded(t), blank))
	})
}

// TestTrapCappedCollection: it would lose the record; a view has none.
func TestTrapCappedCollection(t *testing.T) {
	for kind, spec := range map[string]bson.D{
		"capped": {{Key: "name", Value: "c"}, {Key: "type", Value: "collection"}, {Key: "options", Value: bson.D{{Key: "capped", Value: true}}}},
		"view":   {{Key: "name", Value: "c"}, {Key: "type", Value: "view"}, {Key: "options", Value: bson.D{}}},
	} {
		server := newStandin(t)
		server.on(func(name string, _, answer bson.D) bson.D {
			if name == "listCollections" {
				return batch(0, "firstBatch", bson.A{spec})
			}
			return answer
		})
		err := newStore(t, connect(t, server.uri(), nil), "c").Start(bounded(t))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		require.ErrorContains(t, err, kind)
	}
}

// TestExistingCollection: nothing is made where that is not wanted.
func TestExistingCollection(t *testing.T) {
	server := newStandin(t)
	s := newStore(t, connect(t, server.uri(), nil), "c", mongodb.WithExistingCollection())
	require.ErrorIs(t, s.Start(bounded(t)), changefeed.ErrUnsuitable)
	require.ErrorIs(t, s.Create(bounded(t), blank), changefeed.ErrNoRecord)
	require.Zero(t, server.count("update"))
}

// TestForeignDocument: what is no record is not taken for one, and not touched.
func TestForeignDocument(t *testing.T) {
	id := bson.E{Key: "_id", Value: bson.D{{Key: "changefeed", Value: "an election"}}}
	good := bson.D{
		id,
		{Key: "format", Value: "changefeed/1"},
		{Key: "epoch", Value: "e"},
		{Key: "version", Value: "v"},
		{Key: "seq", Value: int64(1)},
		{Key: "term", Value: int64(1)},
		{Key: "ttl_ns", Value: int64(1)},
	}
	for name, doc := range map[string]bson.D{
		"Empty": {id}, "Format": updated(good, set("format", "changefeed/2")), "Epoch": updated(good, set("epoch", "")),
		"Version": updated(good, set("version", "")), "Type": updated(good, set("term", "one")), "Sign": updated(good, set("seq", int64(-1))),
	} {
		t.Run(name, func(t *testing.T) {
			server := newStandin(t)
			client := connect(t, server.uri(), nil)
			_, err := client.Database(database).Collection("c").InsertOne(bounded(t), doc)
			require.NoError(t, err)
			s := newStore(t, client, "c")
			require.ErrorIs(t, s.Start(bounded(t)), changefeed.ErrUnsuitable)
			_, err = s.Read(bounded(t))
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			prev := blank
			prev.Version = "v"
			_, err = s.Heartbeat(bounded(t), prev, next(prev))
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			require.True(t, equal(server.docs["c"][0], doc))
		})
	}
}

func set(field string, v any) bson.D {
	return bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: v}}}}
}

// TestTrapWriteConcern: the caller's collection may ask for less than a majority. Here
// the commands are looked at.
func TestTrapWriteConcern(t *testing.T) {
	server := newStandin(t)
	var commands atomic.Int64
	server.on(func(name string, command, answer bson.D) bson.D {
		switch name {
		case "update", "findAndModify":
			commands.Add(1)
			if concern := doc(command, "writeConcern"); get(concern, "w") != "majority" || get(concern, "j") != true {
				t.Errorf("%s with write concern %v", name, concern)
			}
		case "find":
			commands.Add(1)
			if get(command, "readConcern.level") != "majority" || get(command, "$readPreference") != nil {
				t.Errorf("find: %v", command)
			}
		}
		return answer
	})
	journal := false
	coll := connect(t, server.uri(), nil).Database(database, options.Database().
		SetWriteConcern(&writeconcern.WriteConcern{W: 1, Journal: &journal})).
		Collection("c", options.Collection().SetReadPreference(readpref.Secondary()).
			SetBSONOptions(&options.BSONOptions{UseJSONStructTags: true}).SetRegistry(bson.NewMgoRegistry()))
	s, err := mongodb.New(coll, "an election")
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Create(bounded(t), blank))
	r, err := s.Read(bounded(t))
	require.NoError(t, err)
	beat(t, s, r)
	require.EqualValues(t, 3, commands.Load())
}

// TestTrapWriteConcernError: the server answers that it has written, and that a majority
// has not. That is neither success nor conflict.
func TestTrapWriteConcernError(t *testing.T) {
	server, s, r := made(t, nil)
	server.on(func(name string, _, answer bson.D) bson.D {
		if name != "findAndModify" && name != "update" {
			return answer
		}
		return append(answer, bson.E{Key: "writeConcernError", Value: bson.D{
			{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"},
		}})
	})
	_, err := s.Heartbeat(bounded(t), r, next(r))
	unknown(t, err)
	unknown(t, newStore(t, connect(t, server.uri(), nil), "another").Create(bounded(t), blank))
	now, err := s.Read(bounded(t))
	require.NoError(t, err)
	require.Equal(t, r.Seq+1, now.Seq, "it was written, as it happens")
}

func unknown(t testing.TB, err error) {
	t.Helper()
	require.Error(t, err)
	for _, known := range []error{changefeed.ErrConflict, changefeed.ErrNoRecord, changefeed.ErrUnsuitable} {
		require.NotErrorIs(t, err, known)
	}
}

// TestTrapRepeatedWrite: the driver sends a write again whose connection breaks. Where the
// server does not know that it has seen it, a writer meets its own write, which is no
// conflict.
func TestTrapRepeatedWrite(t *testing.T) {
	server, s, r := made(t, nil)
	var sent atomic.Int64
	server.on(func(name string, _, answer bson.D) bson.D {
		if name == "findAndModify" && sent.Add(1) == 1 {
			return nil // written, and the connection ends
		}
		return answer
	})
	_, err := s.Heartbeat(bounded(t), r, next(r))
	require.GreaterOrEqual(t, sent.Load(), int64(2), "the driver has repeated the write")
	unknown(t, err)
}

// TestTrapLateWrite: a write that was given up may have been carried out.
func TestTrapLateWrite(t *testing.T) {
	server, s, r := made(t, nil)
	f := follow(t, s, r)
	over := make(chan struct{})
	server.on(func(name string, _, answer bson.D) bson.D {
		if name == "findAndModify" {
			<-over
		}
		return answer
	})
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := s.Heartbeat(ctx, r, next(r))
	close(over)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	unknown(t, err)
	e, err := f.Next(bounded(t))
	require.NoError(t, err)
	require.Equal(t, r.Seq+1, e.Record.Seq)
}

// TestTrapUpsertRaces: of those who create at once all but one meet a duplicate key.
func TestTrapUpsertRaces(t *testing.T) {
	server, s, _ := made(t, nil)
	met := atomic.Bool{}
	server.on(func(name string, _, answer bson.D) bson.D {
		if name == "update" && get(answer, "writeErrors") != nil {
			met.Store(true)
		}
		return answer
	})
	require.NoError(t, s.Create(bounded(t), blank))
	require.True(t, met.Load())
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

// TestClientIsTheCallers: it outlives the store, and one that was disconnected too early
// is told as such.
func TestClientIsTheCallers(t *testing.T) {
	server, s, r := made(t, nil)
	require.NoError(t, s.Close())
	client := connect(t, server.uri(), nil)
	other := newStore(t, client, "c")
	r = beat(t, other, r)
	require.NoError(t, other.Close())
	require.NoError(t, client.Ping(bounded(t), nil))
	last := newStore(t, client, "c")
	require.NoError(t, client.Disconnect(bounded(t)))
	_, err := last.Heartbeat(bounded(t), r, next(r))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
}

// TestNewRefuses: arguments that cannot be used are refused before anything is asked.
func TestNewRefuses(t *testing.T) {
	coll := func(name string) *mongo.Collection {
		return connect(t, "mongodb://127.0.0.1:1", nil).Database("d").Collection(name)
	}
	for name, f := range map[string]func() (*mongodb.Store, error){
		"Nil":    func() (*mongodb.Store, error) { return mongodb.New(nil, "k") },
		"NoName": func() (*mongodb.Store, error) { return mongodb.New(coll(""), "k") },
		"System": func() (*mongodb.Store, error) { return mongodb.New(coll("system.views"), "k") },
		"NoKey":  func() (*mongodb.Store, error) { return mongodb.New(coll("c"), "") },
		"NUL":    func() (*mongodb.Store, error) { return mongodb.New(coll("c"), "a\x00b") },
		"Long":   func() (*mongodb.Store, error) { return mongodb.New(coll("c"), string(make([]byte, 901))) },
		"Option": func() (*mongodb.Store, error) { return mongodb.New(coll("c"), "k", nil) },
		"Quiet":  func() (*mongodb.Store, error) { return mongodb.New(coll("c"), "k", mongodb.WithQuiet(0)) },
	} {
		s, err := f()
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption, name)
		require.Nil(t, s, name)
	}
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
