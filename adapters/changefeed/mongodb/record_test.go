package mongodb_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
)

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
