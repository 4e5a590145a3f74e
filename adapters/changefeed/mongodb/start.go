package mongodb

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Start implements [changefeed.Store]: it opens a change stream, checks the server, the
// collection and the record, and tests the privilege to write by an update that matches
// no document. If the server can lose acknowledged writes, Start returns a
// [changefeed.UnsafeError] unless [WithRisk] accepts the risk.
func (s *Store) Start(ctx context.Context) error {
	if err := s.runner.Do(ctx, "open a change stream of collection "+s.collectionName(), s.checkFeed); err != nil {
		return err
	}
	if err := s.runner.Do(ctx, "read the server's settings", s.checkSafety); err != nil {
		return err
	}
	return s.runner.Do(ctx, "check collection "+s.collectionName(), s.checkCollection)
}

// checkFeed opens and closes a change stream.
func (s *Store) checkFeed(ctx context.Context) error {
	stream, err := s.coll.Watch(ctx, s.recordPipeline())
	if hasCode(err, namespaceNotFound) { // The database does not exist yet, which is not an error.
		return nil
	}
	if err != nil {
		return err
	}
	closeStream(stream)
	return nil
}

// checkCollection checks the collection and the record, and that the user may write.
func (s *Store) checkCollection(ctx context.Context) error {
	spec, found, err := s.readCollectionSpec(ctx)
	switch {
	case hasCode(err, unauthorized): // Then only the following read and write check the collection.
	case err != nil:
		return err
	case !found && s.withoutCreate:
		return s.runner.Unsuitable("collection %s does not exist, and the store is configured not to create it; create it", s.collectionName())
	case found && spec.Type != "" && spec.Type != "collection":
		return s.runner.Unsuitable("%s is a %s; use a collection", s.collectionName(), spec.Type)
	case found && isTrue(spec.Options, "capped"):
		return s.runner.Unsuitable("collection %s is capped and would lose the record; use another", s.collectionName())
	}
	if _, err := s.readRecord(ctx); err != nil && !errors.Is(err, changefeed.ErrNoRecord) {
		return err
	}
	_, err = s.coll.UpdateOne(ctx, s.matchNone(), bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: ""}}}})
	return err
}

// isTrue reports whether a field of a document is true.
func isTrue(doc bson.Raw, name string) bool {
	b, ok := doc.Lookup(name).BooleanOK()
	return ok && b
}

// readCollectionSpec returns the specification of the collection, if it exists.
func (s *Store) readCollectionSpec(ctx context.Context) (spec mongo.CollectionSpecification, found bool, err error) {
	all, err := s.coll.Database().ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: s.coll.Name()}})
	if err != nil || len(all) == 0 {
		return spec, false, err
	}
	return all[0], true, nil
}
