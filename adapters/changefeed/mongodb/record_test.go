package mongodb_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
)

// TestStore_KeepsDocumentsOfOtherPrograms checks that a document that is not a record is neither returned as a record
// nor replaced.
func TestStore_KeepsDocumentsOfOtherPrograms(t *testing.T) {
	id := bson.E{Key: "_id", Value: bson.D{{Key: "changefeed", Value: "an election"}}}
	valid := bson.D{
		id,
		{Key: "format", Value: "changefeed/1"},
		{Key: "epoch", Value: "e"},
		{Key: "version", Value: "v"},
		{Key: "seq", Value: int64(1)},
		{Key: "term", Value: int64(1)},
		{Key: "ttl_ns", Value: int64(1)},
	}
	for name, doc := range map[string]bson.D{
		"Empty": {id}, "Format": applyUpdate(valid, setField("format", "changefeed/2")), "Epoch": applyUpdate(valid, setField("epoch", "")),
		"Version": applyUpdate(valid, setField("version", "")), "Type": applyUpdate(valid, setField("term", "one")), "Sign": applyUpdate(valid, setField("seq", int64(-1))),
	} {
		t.Run(name, func(t *testing.T) {
			server := newFakeServer(t)
			client := connect(t, server.uri(), nil)
			_, err := client.Database(database).Collection("c").InsertOne(fixture.Context(t), doc)
			require.NoError(t, err)
			s := newStore(t, client, "c")
			require.ErrorIs(t, s.Start(fixture.Context(t)), changefeed.ErrUnsuitable)
			_, err = s.Read(fixture.Context(t))
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			prev := fixture.HeldRecord()
			prev.Version = "v"
			_, err = s.Heartbeat(fixture.Context(t), prev, fixture.Next(prev))
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			require.True(t, equal(server.docs["c"][0], doc))
		})
	}
}

// TestStore_IgnoresConcernsOfCollection checks that the store sets its own read and write concerns, because
// those of the caller's collection may require less than a majority.
func TestStore_IgnoresConcernsOfCollection(t *testing.T) {
	server := newFakeServer(t)
	var commands atomic.Int64
	server.setInterceptor(func(name string, command, reply bson.D) bson.D {
		switch name {
		case "update", "findAndModify":
			commands.Add(1)
			if concern := getDocument(command, "writeConcern"); getValue(concern, "w") != "majority" || getValue(concern, "j") != true {
				t.Errorf("%s with write concern %v", name, concern)
			}
		case "find":
			commands.Add(1)
			if getValue(command, "readConcern.level") != "majority" || getValue(command, "$readPreference") != nil {
				t.Errorf("find: %v", command)
			}
		}
		return reply
	})
	journal := false
	coll := connect(t, server.uri(), nil).Database(database, options.Database().
		SetWriteConcern(&writeconcern.WriteConcern{W: 1, Journal: &journal})).
		Collection("c", options.Collection().SetReadPreference(readpref.Secondary()).
			SetBSONOptions(&options.BSONOptions{UseJSONStructTags: true}).SetRegistry(bson.NewMgoRegistry()))
	s, err := mongodb.NewStore(coll, "an election")
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Create(fixture.Context(t), fixture.HeldRecord()))
	r := fixture.Read(t, s)
	fixture.Heartbeat(t, s, r)
	require.EqualValues(t, 3, commands.Load())
}

// TestHeartbeat_WriteConcernErrorIsUnknownOutcome checks that a write that the server has applied, but that a majority
// has not confirmed, is reported neither as a success nor as a conflict.
func TestHeartbeat_WriteConcernErrorIsUnknownOutcome(t *testing.T) {
	server, s, r := createRecord(t, nil)
	server.setInterceptor(func(name string, _, reply bson.D) bson.D {
		if name != "findAndModify" && name != "update" {
			return reply
		}
		return append(reply, bson.E{Key: "writeConcernError", Value: bson.D{
			{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"},
		}})
	})
	_, err := s.Heartbeat(fixture.Context(t), r, fixture.Next(r))
	fixture.RequireUnknownOutcome(t, err)
	fixture.RequireUnknownOutcome(t, newStore(t, connect(t, server.uri(), nil), "another").Create(fixture.Context(t), fixture.HeldRecord()))
	now := fixture.Read(t, s)
	require.Equal(t, r.Seq+1, now.Seq, "the heartbeat was applied")
}

// TestHeartbeat_DoesNotConflictWithRetryOfDriver checks that a heartbeat does not conflict with itself when the
// driver retries it after the connection broke, and the server does not recognize the retry.
func TestHeartbeat_DoesNotConflictWithRetryOfDriver(t *testing.T) {
	server, s, r := createRecord(t, nil)
	var sent atomic.Int64
	server.setInterceptor(func(name string, _, reply bson.D) bson.D {
		if name == "findAndModify" && sent.Add(1) == 1 {
			return nil // A nil reply closes the connection after the write was applied.
		}
		return reply
	})
	_, err := s.Heartbeat(fixture.Context(t), r, fixture.Next(r))
	require.GreaterOrEqual(t, sent.Load(), int64(2), "the driver has not retried the write")
	fixture.RequireUnknownOutcome(t, err)
}

// TestHeartbeat_OutcomeIsUnknownIfContextIsDone checks that a write whose context was done is not reported as rejected,
// because the server may have applied it, and that the feed delivers the record if it was.
func TestHeartbeat_OutcomeIsUnknownIfContextIsDone(t *testing.T) {
	server, s, r := createRecord(t, nil)
	f := fixture.SubscribeTo(t, s, r)
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server.setInterceptor(func(name string, _, reply bson.D) bson.D {
		if name == "findAndModify" {
			cancel()
			<-release
		}
		return reply
	})
	_, err := s.Heartbeat(ctx, r, fixture.Next(r))
	close(release)
	require.ErrorIs(t, err, context.Canceled)
	fixture.RequireUnknownOutcome(t, err)
	e := fixture.NextEvent(t, f)
	require.Equal(t, r.Seq+1, e.Record.Seq)
}

// TestCreate_SucceedsIfRecordExists checks that Create does not return an error when another store has created
// the record.
func TestCreate_SucceedsIfRecordExists(t *testing.T) {
	server, s, _ := createRecord(t, nil)
	var duplicate atomic.Bool
	server.setInterceptor(func(name string, _, reply bson.D) bson.D {
		if name == "update" && getValue(reply, "writeErrors") != nil {
			duplicate.Store(true)
		}
		return reply
	})
	require.NoError(t, s.Create(fixture.Context(t), fixture.HeldRecord()))
	require.True(t, duplicate.Load())
}
