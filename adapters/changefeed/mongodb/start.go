package mongodb

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

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
