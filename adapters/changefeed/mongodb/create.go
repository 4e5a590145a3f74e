package mongodb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/codec"
)

// noVersion is a filter that no record passes.
func (s *Store) noVersion() bson.D {
	return bson.D{{Key: "_id", Value: s.id()}, {Key: "version", Value: ""}}
}

// Start implements [changefeed.Store]: it opens a change stream, checks the server, the
// collection and the record, and tests the privilege to write by an update that matches
// no document. If the server can lose acknowledged writes, Start returns a
// [changefeed.UnsafeError] unless [WithRisk] accepts the risk.
func (s *Store) Start(ctx context.Context) error {
	both, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := s.checkFeed(both); err != nil {
		return s.explain(ctx, "open a change stream of collection "+s.name(), err)
	}
	if err := s.checkSafety(both); err != nil {
		return s.explain(ctx, "read the server's settings", err)
	}
	return s.explain(ctx, "check collection "+s.name(), s.check(both))
}

func (s *Store) checkFeed(ctx context.Context) error {
	stream, err := s.coll.Watch(ctx, s.pipeline())
	if hasCode(err, namespaceNotFound) { // there is no database yet
		return nil
	}
	if err != nil {
		return err
	}
	endStream(stream)
	return nil
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: mongodb: "+format, append([]any{changefeed.ErrUnsuitable}, args...)...)
}

func (s *Store) check(ctx context.Context) error {
	spec, found, err := s.collection(ctx)
	switch {
	case hasCode(err, unauthorized): // less is seen then
	case err != nil:
		return err
	case !found && s.existing:
		return refuse("collection %s does not exist, and the store is configured not to create it; create it", s.name())
	case found && spec.Type != "" && spec.Type != "collection":
		return refuse("%s is a %s; use a collection", s.name(), spec.Type)
	case found && truth(spec.Options, "capped"):
		return refuse("collection %s is capped and would lose the record; use another", s.name())
	}
	if _, err := s.read(ctx); err != nil && !errors.Is(err, changefeed.ErrNoRecord) {
		return err
	}
	_, err = s.coll.UpdateOne(ctx, s.noVersion(), bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: ""}}}})
	return err
}

func truth(doc bson.Raw, name string) bool {
	b, ok := doc.Lookup(name).BooleanOK()
	return ok && b
}

// collection is what the server says of the collection.
func (s *Store) collection(ctx context.Context) (spec mongo.CollectionSpecification, found bool, err error) {
	all, err := s.coll.Database().ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: s.coll.Name()}})
	if err != nil || len(all) == 0 {
		return spec, false, err
	}
	return all[0], true, nil
}

// Create implements [changefeed.Store]. If the collection does not exist, the server
// creates it together with the record.
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	both, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := codec.CheckColumns(blank); err != nil {
		return err
	}
	return s.explain(ctx, "create the record in collection "+s.name(), s.create(both, blank))
}

func (s *Store) create(ctx context.Context, blank changefeed.Record) error {
	if s.existing {
		_, found, err := s.collection(ctx)
		if err != nil && !hasCode(err, unauthorized) {
			return err
		}
		if err == nil && !found {
			return fmt.Errorf("%w: the collection does not exist, and the store is configured not to create it", changefeed.ErrNoRecord)
		}
	}
	blank.Version = rand.Text()
	// Where there is a record the filter fits nothing, and the insert that follows meets
	// the _id: as it does for all but one of those who create at once.
	_, err := s.coll.UpdateOne(ctx, s.noVersion(), update(blank), options.UpdateOne().SetUpsert(true))
	if mongo.IsDuplicateKeyError(err) {
		return nil
	}
	return err
}
