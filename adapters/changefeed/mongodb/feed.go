package mongodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/cursor"
)

// Why a stream is over that the driver reports no error of.
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
	source := &cursor.Source{
		// A stream begins with what is written after it was opened; the record is read then.
		Life: s.life, Read: s.Read, Quiet: s.quiet, ReadsFirst: true,
		Open: func(ctx context.Context) (cursor.Cursor[cursor.Told], error) {
			c, err := s.watch(ctx, s.coll, s.pipeline(), options.ChangeStream().SetFullDocument(options.UpdateLookup))
			return states{c}, err
		},
	}
	return source.Subscribe(ctx)
}

func (s *Store) watch(ctx context.Context, coll *mongo.Collection, pipeline mongo.Pipeline, opts ...options.Lister[options.ChangeStreamOptions]) (*stream, error) {
	name := coll.Database().Name() + "." + coll.Name()
	driver, err := coll.Watch(ctx, pipeline, opts...)
	if err != nil {
		return nil, s.explain(ctx, "open a change stream of collection "+name, err)
	}
	return &stream{store: s, name: name, ctx: ctx, driver: driver}, nil
}

// stream is a change stream of the driver.
type stream struct {
	store  *Store
	name   string // of the collection
	ctx    context.Context
	driver *mongo.ChangeStream
}

// patience is longer than any feed is silent. With a limit of its own a wait is not cut
// short by the client's Timeout, which would end the stream.
const patience = 1000 * time.Hour

// event waits for the next.
func (c *stream) event() (bson.Raw, error) {
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	if c.driver.Next(ctx) {
		return c.driver.Current, nil
	}
	err := c.driver.Err()
	if err == nil { // a collection that was dropped ends streams without one
		err = errEnded
	}
	return nil, c.fail(err)
}

func (c *stream) fail(err error) error {
	return c.store.explain(context.Background(), "follow collection "+c.name, err)
}

// Close implements [cursor.Cursor].
func (c *stream) Close() { endStream(c.driver) }

// endStream tells the server that a stream is no longer needed, if that answers soon.
func endStream(s *mongo.ChangeStream) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.Close(ctx)
}

// states are those of the record.
type states struct{ *stream }

// Next implements [cursor.Cursor]. A document that was looked up may be newer than its
// event, and an event older than what was read at first.
func (c states) Next() (cursor.Told, error) {
	told := cursor.Told{Doubtful: true}
	event, err := c.event()
	if err != nil {
		return told, err
	}
	kind, _ := event.Lookup("operationType").StringValueOK()
	if slices.Contains(ends, any(kind)) {
		return told, c.fail(errDropped)
	}
	doc, ok := event.Lookup("fullDocument").DocumentOK()
	if !ok { // it was deleted, or had been when it was looked up
		told.Missing = true
		return told, nil
	}
	told.Record, err = decode(doc)
	return told, err
}

// Watch implements [changefeed.Watcher] with a change stream of the whole collection,
// without the records of elections. Each change is a bson.Raw, the event as the server
// sends it: with the document for an insert or a replacement, with the updated fields for
// an update, and with the _id for a deletion. The driver resumes a stream after a failure
// as far as the server's oplog permits. After any error, read the current data.
func (s *Store) Watch(ctx context.Context) (changefeed.Changes, error) {
	return s.changes(ctx, s.coll)
}

// WatchPlace implements [changefeed.PlaceWatcher]. It is like [Store.Watch] for another
// collection of the same database.
func (s *Store) WatchPlace(ctx context.Context, name string) (changefeed.Changes, error) {
	if name == "" {
		return nil, fmt.Errorf("%w: the collection's name is empty", leaderelection.ErrInvalidOption)
	}
	return s.changes(ctx, s.coll.Database().Collection(name))
}

func (s *Store) changes(ctx context.Context, coll *mongo.Collection) (changefeed.Changes, error) {
	others := mongo.Pipeline{{{Key: "$match", Value: bson.D{
		{Key: "documentKey._id.changefeed", Value: bson.D{{Key: "$exists", Value: false}}},
	}}}}
	return cursor.Watch(ctx, s.life, func(ctx context.Context) (cursor.Cursor[bson.Raw], error) {
		c, err := s.watch(ctx, coll, others)
		return documents{c}, err
	})
}

// documents are the changes of others.
type documents struct{ *stream }

// Next implements [cursor.Cursor].
func (c documents) Next() (bson.Raw, error) {
	event, err := c.event()
	return slices.Clone(event), err
}
