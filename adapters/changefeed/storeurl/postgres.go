//go:build !no_postgres

package storeurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
)

func init() { openers["postgres"], openers["postgresql"] = openPostgres, openPostgres }

func openPostgres(ctx context.Context, a address) (*Opened, error) {
	table := pgx.Identifier(strings.Split(a.takeParameter("table"), "."))
	if a.config.Password != "" {
		a.query.Del("password") // pgx prefers it to the password before the host.
	}
	cfg, err := pgxpool.ParseConfig(a.driverURL())
	if err != nil {
		var parse *pgconn.ParseConfigError
		if errors.As(err, &parse) {
			parse.ConnString = Redacted(parse.ConnString) // The error contains it.
		}
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrInvalidOption, err)
	}
	if a.config.TLS != nil {
		useTLS(&cfg.ConnConfig.Config, a.tlsConfig)
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Opened{
		New: func() (changefeed.Store, error) {
			return postgres.New(pool, table, a.config.Election, postgres.WithRisk(a.risks...))
		},
		Close: pool.Close,
	}, nil
}

// useTLS makes connections to all hosts use TLS. The driver has listed a host twice if sslmode allows
// connections without TLS as well.
func useTLS(cfg *pgconn.Config, configOf func(host string) *tls.Config) {
	cfg.TLSConfig = configOf(cfg.Host)
	fallbacks := cfg.Fallbacks
	cfg.Fallbacks = nil
	host, port := cfg.Host, cfg.Port
	for _, f := range fallbacks {
		if f.Host == host && f.Port == port {
			continue
		}
		host, port = f.Host, f.Port
		f.TLSConfig = configOf(host)
		cfg.Fallbacks = append(cfg.Fallbacks, f)
	}
}
