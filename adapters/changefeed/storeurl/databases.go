package storeurl

// Stores of programs whose shared system is a database.

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	redisclient "github.com/redis/go-redis/v9"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
)

func openPostgres(ctx context.Context, a address) (*Opened, error) {
	table := pgx.Identifier(strings.Split(a.take("table"), "."))
	cfg, err := pgxpool.ParseConfig(a.rest())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrInvalidOption, err) // pgx hides the password
	}
	if a.TLS != nil {
		secure := a.TLS.Clone()
		secure.ServerName = cmp.Or(secure.ServerName, cfg.ConnConfig.Host)
		cfg.ConnConfig.TLSConfig = secure
		cfg.ConnConfig.Fallbacks = nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Opened{
		New: func() (changefeed.Store, error) {
			return postgres.New(pool, table, a.Election, postgres.WithRisk(a.risks...))
		},
		Close: pool.Close,
	}, nil
}

func openRedis(_ context.Context, a address) (*Opened, error) {
	cfg, err := redisclient.ParseURL(a.rest())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrInvalidOption, err)
	}
	if a.TLS != nil {
		secure := a.TLS.Clone()
		secure.ServerName = cmp.Or(secure.ServerName, a.Hostname())
		cfg.TLSConfig = secure
	}
	// Otherwise a request whose context is done keeps a connection until the client's timeouts.
	cfg.ContextTimeoutEnabled = true
	client := redisclient.NewClient(cfg)
	return &Opened{
		New: func() (changefeed.Store, error) {
			return redis.New(client, defaultPlace+":"+a.Election, redis.WithRisk(a.risks...))
		},
		Close: func() { _ = client.Close() },
	}, nil
}
