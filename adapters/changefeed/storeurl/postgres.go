//go:build !no_postgres

package storeurl

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
)

func init() { openers["postgres"], openers["postgresql"] = openPostgres, openPostgres }

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
