package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Start implements [changefeed.Store]: it checks the server, its configuration and the
// key, and subscribes once. If the server can lose acknowledged writes, Start returns a
// [changefeed.UnsafeError] unless [WithRisk] accepts the risk.
func (s *Store) Start(ctx context.Context) error {
	_, err := ask(ctx, s, "check", func(ctx context.Context) (struct{}, error) { return struct{}{}, s.check(ctx) })
	if err != nil {
		return err
	}
	f, err := s.Subscribe(ctx)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Next(ctx)
	return s.explain(ctx, "subscribe for", err)
}

func (s *Store) check(ctx context.Context) error {
	node, err := s.node(ctx)
	if err != nil {
		return err
	}
	if err := s.checkSafety(ctx, node); err != nil {
		return err
	}
	kind, err := s.client.Type(ctx, s.key).Result()
	switch {
	case err != nil:
		return err
	case kind != "none" && kind != "hash":
		return fmt.Errorf("%w: redis: key %q is a %s; use another key", changefeed.ErrUnsuitable, s.key, kind)
	}
	if _, err = s.read(ctx); errors.Is(err, changefeed.ErrNoRecord) {
		return nil
	}
	return err
}

// node is the client of the server that has the key.
func (s *Store) node(ctx context.Context) (*redis.Client, error) {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, s.key)
	}
	return s.client.(*redis.Client), nil
}
