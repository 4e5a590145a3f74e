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

// Errors of a stream that ends although the driver reports no error.
var (
	errDropped = errors.New("the collection was dropped or renamed")
	errEnded   = errors.New("the server has ended the change stream")
)

// ends are the events that are about the collection as a whole. A filter by _id alone
// would keep them away, with the end of the stream among them.
var ends = bson.A{"drop", "rename", "dropDatabase", "invalidate"}

// pipeline has what concerns the record.
func (s *Store) pipeline() mongo.Pipeline {
	return mongo.Pipeline{{{Key: "$match", Value: bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "documentKey._id", Value: s.id()}},
		bson.D{{Key: "operationType", Value: bson.D{{Key: "$in", Value: ends}}}},
	}}}}}}
}

// Subscribe implements [changefeed.Store].
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	return s.feeds.Subscribe(ctx)
}

// watch is a [changefeed.WatchFunc].
func (s *Store) watch(ctx context.Context, report func(changefeed.Event)) error {
	stream := options.ChangeStream().SetFullDocument(options.UpdateLookup)
	return s.stream(ctx, s.coll, s.pipeline(), stream, func() { report(changefeed.Event{}) }, func(event bson.Raw) error {
		kind, _ := event.Lookup("operationType").StringValueOK()
		if slices.Contains(ends, any(kind)) {
			return errDropped
		}
		doc, ok := event.Lookup("fullDocument").DocumentOK()
		if !ok { // It was deleted, at the latest before the server looked it up.
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

// stream opens a change stream of coll. It calls opened, and then changed for each event, until
// ctx is done or there is an error.
func (s *Store) stream(ctx context.Context, coll *mongo.Collection, pipeline mongo.Pipeline, opts options.Lister[options.ChangeStreamOptions], opened func(), changed func(event bson.Raw) error) error {
	name := coll.Database().Name() + "." + coll.Name()
	driver, err := coll.Watch(ctx, pipeline, opts)
	if err != nil {
		return s.explain(ctx, "open a change stream of collection "+name, err)
	}
	defer s.feeds.Release(func() { endStream(driver) })
	opened()
	for err == nil {
		if next(ctx, driver) {
			err = changed(driver.Current)
		} else if err = driver.Err(); err == nil { // A collection that was dropped ends streams without an error.
			err = errEnded
		}
	}
	return s.explain(context.Background(), "follow collection "+name, err)
}

// next waits for the next event of a stream. A wait with a limit, which is longer than any stream is
// silent, is not subject to the client's Timeout, which would end the stream.
func next(ctx context.Context, driver *mongo.ChangeStream) bool {
	ctx, cancel := context.WithTimeout(ctx, 1000*time.Hour)
	defer cancel()
	return driver.Next(ctx)
}

// endStream informs the server that a stream is no longer needed, if it answers within a second.
func endStream(s *mongo.ChangeStream) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.Close(ctx)
}

// Changes implements [changefeed.Store] with a change stream of the whole collection named place
// in the same database, or of the store's own collection if that is empty, without the
// records of elections. Each change is a bson.Raw, the event as the server sends it: with
// the document for an insert or a replacement, with the updated fields for an update, and
// with the _id for a deletion. The driver resumes a stream after a failure
// as far as the server's oplog permits. If a reader is more than 1000 changes late, it
// receives those and then [changefeed.ErrMissed]. After any error, read the current data.
func (s *Store) Changes(ctx context.Context, place string) (changefeed.Changes, error) {
	coll := s.coll
	if place != "" {
		coll = coll.Database().Collection(place)
	}
	others := mongo.Pipeline{{{Key: "$match", Value: bson.D{
		{Key: "documentKey._id.changefeed", Value: bson.D{{Key: "$exists", Value: false}}},
	}}}}
	return s.feeds.Changes(ctx, func(ctx context.Context, report func(any)) error {
		return s.stream(ctx, coll, others, options.ChangeStream(), func() { report(nil) }, func(event bson.Raw) error {
			report(slices.Clone(event))
			return nil
		})
	})
}
