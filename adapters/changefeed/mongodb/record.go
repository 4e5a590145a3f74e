package mongodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

type record struct {
	store.Document[int64] `bson:",inline"`
	Time                  time.Time `bson:"time"` // Time is set by the server.
}

// newUpdate returns an update that sets all fields of the record, and its time to the time of the server. It uses
// only operators that all supported releases of MongoDB have.
func newUpdate(r changefeed.Record) bson.D {
	return bson.D{
		{Key: "$set", Value: store.NewDocument[int64](r)},
		{Key: "$currentDate", Value: bson.D{{Key: "time", Value: true}}},
	}
}

// decode decodes a document. The error wraps [changefeed.ErrUnsuitable].
func decode(raw bson.Raw) (changefeed.Record, error) {
	var d record
	if err := bson.Unmarshal(raw, &d); err != nil {
		return changefeed.Record{}, store.NotRecord(err)
	}
	if d.Version == "" {
		return changefeed.Record{}, store.NotRecord(errors.New("the field version is missing or empty"))
	}
	r, err := d.Record()
	r.Time = d.Time.UTC()
	return r, err
}

// decode decodes the document of the record. Its error contains the key and the collection.
func (s *Store) decode(raw bson.Raw) (changefeed.Record, error) {
	r, err := decode(raw)
	if err != nil {
		return r, fmt.Errorf("mongodb: key %q in collection %s: %w", s.key, s.collectionName(), err)
	}
	return r, nil
}

// Create implements [changefeed.Store]. If the collection does not exist, the server
// creates it together with the record.
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	return s.runner.Create(ctx, "create the record in collection "+s.collectionName(), blank, s.createRecord)
}

func (s *Store) createRecord(ctx context.Context, blank changefeed.Record) error {
	if s.withoutCreate {
		_, found, err := s.readCollectionSpec(ctx)
		if err != nil && !hasCode(err, unauthorized) {
			return err
		}
		if err == nil && !found {
			return fmt.Errorf("%w: the collection does not exist, and the store is configured not to create it", changefeed.ErrNoRecord)
		}
	}
	// The filter matches no document, so the upsert inserts the record, unless a document with
	// its _id exists.
	_, err := s.coll.UpdateOne(ctx, s.matchNone(), newUpdate(blank), options.UpdateOne().SetUpsert(true))
	if mongo.IsDuplicateKeyError(err) {
		return nil
	}
	return err
}

// matchNone returns a filter that no record matches.
func (s *Store) matchNone() bson.D {
	return bson.D{{Key: "_id", Value: s.documentID()}, {Key: "version", Value: ""}}
}

// Heartbeat implements [changefeed.Store].
func (s *Store) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	return s.runner.Heartbeat(ctx, "write to collection "+s.collectionName(), prev, next, s.replaceRecord)
}

// errRetried is the error of a heartbeat that seems to have conflicted with itself: the driver has sent it again
// after the server had applied it.
var errRetried = errors.New("the driver repeated the write, and the record has the new value: it is unknown whether a majority has it")

// replaceRecord replaces prev by next, or returns the reason why it has not replaced the record.
func (s *Store) replaceRecord(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	filter := bson.D{
		{Key: "_id", Value: s.documentID()},
		{Key: "version", Value: prev.Version},
		{Key: "epoch", Value: prev.Epoch},
		{Key: "format", Value: store.Format},
	}
	raw, err := s.coll.FindOneAndUpdate(ctx, filter, newUpdate(next),
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Raw()
	switch {
	case err == nil:
		return s.decode(raw)
	case !errors.Is(err, mongo.ErrNoDocuments):
		return changefeed.Record{}, err
	}
	now, err := s.readRecord(ctx)
	switch {
	case err != nil:
		return changefeed.Record{}, err
	case now.Version == next.Version:
		return changefeed.Record{}, errRetried
	}
	return changefeed.Record{}, changefeed.ErrConflict
}

// Read implements [changefeed.Store]. It returns a state that a majority of members has, which
// may not be the latest.
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	return s.runner.Read(ctx, "read collection "+s.collectionName(), s.readRecord)
}

func (s *Store) readRecord(ctx context.Context) (changefeed.Record, error) {
	raw, err := s.coll.FindOne(ctx, bson.D{{Key: "_id", Value: s.documentID()}}).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return changefeed.Record{}, changefeed.ErrNoRecord
	case err != nil:
		return changefeed.Record{}, err
	}
	return s.decode(raw)
}
