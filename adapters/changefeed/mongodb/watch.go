package mongodb

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// These errors end a feed whose stream has ended although the driver reports no error.
var (
	errDropped     = errors.New("the collection was dropped or renamed")
	errStreamEnded = errors.New("the server has ended the change stream")
)

// collectionEvents are the events after which a change stream of the collection ends. recordPipeline selects them
// explicitly, because they have no _id of a document, by which it selects the events of the record.
var collectionEvents = bson.A{"drop", "rename", "dropDatabase", "invalidate"}

// recordPipeline selects the events of the record and of the collection.
func (s *Store) recordPipeline() mongo.Pipeline {
	return mongo.Pipeline{{{Key: "$match", Value: bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "documentKey._id", Value: s.documentID()}},
		bson.D{{Key: "operationType", Value: bson.D{{Key: "$in", Value: collectionEvents}}}},
	}}}}}}
}

// Subscribe implements [changefeed.Store].
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	return s.runner.Subscribe(ctx)
}

// watch is a [store.WatchFunc] that reports the records from a change stream.
func (s *Store) watch(ctx context.Context, report func(changefeed.Event)) error {
	opts := options.ChangeStream().SetFullDocument(options.UpdateLookup)
	return s.followStream(ctx, s.coll, s.recordPipeline(), opts, func() { report(changefeed.Event{}) }, func(event bson.Raw) error {
		kind, _ := event.Lookup("operationType").StringValueOK()
		if slices.Contains(collectionEvents, any(kind)) {
			return errDropped
		}
		doc, ok := event.Lookup("fullDocument").DocumentOK()
		if !ok { // The document was deleted before the server looked it up.
			report(changefeed.Event{Missing: true})
			return nil
		}
		r, err := decode(doc)
		if err == nil {
			report(changefeed.Event{Record: r})
		}
		return err
	})
}

// followStream opens a change stream of coll and calls opened. Then it calls changed for each event, until ctx is done
// or an error occurs.
func (s *Store) followStream(ctx context.Context, coll *mongo.Collection, pipeline mongo.Pipeline, opts options.Lister[options.ChangeStreamOptions], opened func(), changed func(event bson.Raw) error) error {
	name := coll.Database().Name() + "." + coll.Name()
	stream, err := coll.Watch(ctx, pipeline, opts)
	if err != nil {
		return s.runner.WrapError(ctx, "open a change stream of collection "+name, err)
	}
	defer s.runner.Release(func() { closeStream(stream) })
	opened()
	for err == nil {
		if nextEvent(ctx, stream) {
			err = changed(stream.Current)
		} else if err = stream.Err(); err == nil { // The stream has ended without an error, because the collection was dropped.
			err = errStreamEnded
		}
	}
	return s.runner.WrapError(context.Background(), "follow collection "+name, err)
}

// nextEvent waits for the next event of a stream. Its time limit is longer than any pause between events; without it,
// the driver would apply the client's Timeout, which would end the stream.
func nextEvent(ctx context.Context, stream *mongo.ChangeStream) bool {
	ctx, cancel := context.WithTimeout(ctx, 1000*time.Hour)
	defer cancel()
	return stream.Next(ctx)
}

// closeStream closes a stream at the server, if it answers within a second.
func closeStream(stream *mongo.ChangeStream) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = stream.Close(ctx)
}

// Changes implements [changefeed.Store] with a change stream of the whole collection named place
// in the same database, or of the store's own collection if place is empty, without the records
// of elections. Each change is a bson.Raw, the event as the server sends it: with the document
// for an insert or a replacement, with the updated fields for an update, and with the _id for a
// deletion. The driver resumes a stream after a failure as far as the server's oplog permits. If
// a reader is more than 1000 changes behind, it receives the changes that were kept and then
// [changefeed.ErrMissed]. After any error, read the current data.
func (s *Store) Changes(ctx context.Context, place string) (changefeed.Changes, error) {
	coll := s.coll
	if place != "" {
		coll = coll.Database().Collection(place)
	}
	others := mongo.Pipeline{{{Key: "$match", Value: bson.D{
		{Key: "documentKey._id.changefeed", Value: bson.D{{Key: "$exists", Value: false}}},
	}}}}
	return s.runner.Changes(ctx, func(ctx context.Context, report func(any)) error {
		return s.followStream(ctx, coll, others, options.ChangeStream(), func() { report(nil) }, func(event bson.Raw) error {
			report(slices.Clone(event))
			return nil
		})
	})
}
