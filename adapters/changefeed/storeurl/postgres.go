//go:build !no_postgres

package storeurl

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/transport"
)

func init() { drivers["postgres"], drivers["postgresql"] = openPostgres, openPostgres }

func openPostgres(a address) (connector, error) {
	table := pgx.Identifier(strings.Split(a.takeParameter("table"), "."))
	poll, err := a.takePoll()
	if err != nil {
		return nil, err
	}
	if a.config.Password != "" {
		a.query.Del("password") // pgx would prefer this parameter to the password before the host.
	}
	if err := checkSSLMode(&a); err != nil {
		return nil, err
	}
	cfg, err := parsePostgres(&a)
	if err != nil {
		return nil, err
	}
	if postgresLogin(&a, cfg).Check() != nil {
		a.query.Set(sslmode, "verify-full")
		if cfg, err = parsePostgres(&a); err != nil {
			return nil, err
		}
	}
	if a.config.TLS != nil {
		useTLS(&cfg.ConnConfig.Config, a.tlsConfig)
	}
	return func(ctx context.Context) (*Opener, error) {
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return newOpener(func() (changefeed.Store, error) {
			options := []postgres.Option{postgres.WithRisk(a.risks...)}
			if poll > 0 {
				options = append(options, postgres.WithPoll(poll))
			}
			return postgres.NewStore(pool, table, a.config.Election, options...)
		}, func() error { pool.Close(); return nil }), nil
	}, nil
}

// sslmode is the parameter that determines whether PostgreSQL's client uses TLS.
const sslmode = "sslmode"

// checkSSLMode returns an error if the parameter permits connections without TLS and Config.TLS is set.
func checkSSLMode(a *address) error {
	mode := a.query.Get(sslmode)
	if mode == "" {
		return nil
	}
	p := transport.Address{Text: sslmode + "=" + mode, Security: transport.TLS}
	if slices.Contains([]string{"disable", "allow", "prefer"}, mode) {
		p.Security = transport.Plain
	}
	return a.checkSecurity(p)
}

// postgresLogin describes the login of the driver, which may also have taken the password from the environment or a
// file. Without sslmode the driver's default is prefer: then a machine between the client and the server can answer that
// TLS is not supported, and request the password.
func postgresLogin(a *address, cfg *pgxpool.Config) transport.Login {
	login := a.newLogin("PostgreSQL", "password", cfg.ConnConfig.Password != "", false)
	login.Hosts = []string{cfg.ConnConfig.Host}
	for _, f := range cfg.ConnConfig.Fallbacks {
		login.Hosts = append(login.Hosts, f.Host)
	}
	login.Explicit = login.Explicit || a.query.Get(sslmode) != "" || os.Getenv("PGSSLMODE") != ""
	return login
}

// parsePostgres returns the driver's configuration for an address. It also takes the environment into account, as libpq
// does.
func parsePostgres(a *address) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(a.driverURL())
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		parse.ConnString = Redacted(parse.ConnString) // The text of the error contains the address.
	}
	return cfg, err
}

// useTLS makes connections to all hosts use TLS. If sslmode also allows connections without TLS, the driver has listed
// each host twice, and useTLS removes the second entry.
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
