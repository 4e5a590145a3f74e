package redis

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Start implements [changefeed.Store]: it checks the server, its configuration and the
// key, and publishes and subscribes once. If the server can lose acknowledged writes, Start returns a
// [changefeed.UnsafeError] unless [WithRisk] accepts the risk.
func (s *Store) Start(ctx context.Context) error {
	if err := s.runner.Do(ctx, "check", s.checkServer); err != nil {
		return err
	}
	f, err := s.Subscribe(ctx)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Next(ctx)
	return s.runner.WrapError(ctx, "subscribe for", err)
}

// checkServer checks the server, its configuration and the key.
func (s *Store) checkServer(ctx context.Context) error {
	server, err := s.serverOfKey(ctx)
	if err != nil {
		return err
	}
	if err := s.checkSafety(ctx, server); err != nil {
		return err
	}
	kind, err := s.client.Type(ctx, s.key).Result()
	switch {
	case err != nil:
		return err
	case kind != "none" && kind != "hash":
		return s.runner.Unsuitable("key %q is a %s; use another key", s.key, kind)
	}
	if _, err = s.readRecord(ctx); err != nil && !errors.Is(err, changefeed.ErrNoRecord) {
		return err
	}
	return publishScript.Run(ctx, s.client, []string{s.key}, s.channel).Err()
}

// serverOfKey returns the client of the server that stores the key.
func (s *Store) serverOfKey(ctx context.Context) (*redis.Client, error) {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, s.key)
	}
	return s.client.(*redis.Client), nil
}
