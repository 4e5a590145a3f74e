//go:build !no_redis

package storeurl

import (
	"context"
	"fmt"

	redisclient "github.com/redis/go-redis/v9"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
)

func init() { openers["redis"], openers["rediss"] = openRedis, openRedis }

func openRedis(_ context.Context, a address) (*Opened, error) {
	cfg, err := redisclient.ParseURL(a.driverURL())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrInvalidOption, err)
	}
	if secure := a.tlsConfig(a.url.Hostname()); secure != nil {
		cfg.TLSConfig = secure
	}
	// Otherwise a request whose context is done keeps a connection until the client's timeouts.
	cfg.ContextTimeoutEnabled = true
	client := redisclient.NewClient(cfg)
	return &Opened{
		New: func() (changefeed.Store, error) {
			return redis.New(client, defaultName+":"+a.config.Election, redis.WithRisk(a.risks...))
		},
		Close: func() { _ = client.Close() },
	}, nil
}
