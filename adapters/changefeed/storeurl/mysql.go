//go:build !no_mysql

package storeurl

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mysql"
	"github.com/go-leaderelection/leaderelection/transport"
)

func init() {
	drivers["mysql"], drivers["mariadb"] = openMySQL, openMySQL
	driverLogs = append(driverLogs, func(log *slog.Logger) { _ = mysqldriver.SetLogger(mysqlLog{log}) })
}

// mysqlLog passes the messages of the driver to a logger.
type mysqlLog struct{ log *slog.Logger }

func (m mysqlLog) Print(v ...any) { m.log.Debug("mysql: " + fmt.Sprint(v...)) }

// mysqlParameters are the parameters that an address may contain: those of the driver, and variables of the session. Any
// other parameter is rejected, because the driver would set any variable, even the one that changes the account's
// password.
var mysqlParameters = []string{
	"charset", "collation", "interpolateParams", "readTimeout", "timeout", "tls", "writeTimeout",
	"innodb_lock_wait_timeout", "transaction_isolation", "tx_isolation", "wsrep_sync_wait",
}

func openMySQL(a address) (connector, error) {
	table := a.takeParameter("table")
	poll, err := a.takePoll()
	if err != nil {
		return nil, err
	}
	cfg, err := parseMySQL(&a)
	if err != nil {
		return nil, err
	}
	return func(context.Context) (*Opener, error) {
		connector, err := mysqldriver.NewConnector(cfg)
		if err != nil {
			return nil, err
		}
		db := sql.OpenDB(connector)
		return newOpener(func() (changefeed.Store, error) {
			options := []mysql.Option{mysql.WithRisk(a.risks...), mysql.WithServerNames(a.url.Host)}
			if poll > 0 {
				options = append(options, mysql.WithPoll(poll))
			}
			return mysql.NewStore(db, table, a.config.Election, options...)
		}, db.Close), nil
	}, nil
}

// parseMySQL returns the driver's configuration for an address, or an error if the address is not valid or permits an
// unprotected login.
func parseMySQL(a *address) (*mysqldriver.Config, error) {
	database := strings.Trim(a.url.Path, "/")
	switch {
	case database == "":
		return nil, fmt.Errorf("no database: expected %s://host/database", a.url.Scheme)
	case strings.Contains(a.url.Host, ","):
		return nil, errors.New("the driver supports one server: use the address of a proxy or a name with several addresses")
	}
	for name := range a.query {
		if !slices.Contains(mysqlParameters, name) {
			return nil, fmt.Errorf("unknown parameter %q: expected table, poll, unsafe, %s", name, strings.Join(mysqlParameters, ", "))
		}
	}
	login := a.newLogin("MySQL", "password", false, false)
	if mode := a.query.Get("tls"); mode != "" {
		p := transport.Address{Text: "tls=" + mode, Security: transport.TLS}
		switch mode {
		case "true", "skip-verify":
			login.TLS = true
		case "false", "preferred":
			p.Security = transport.Plain
		default:
			return nil, errors.New("the parameter tls is not true, skip-verify, preferred or false")
		}
		if err := a.checkSecurity(p); err != nil {
			return nil, err
		}
	}
	host := a.url.Host
	if a.url.Port() == "" {
		host = net.JoinHostPort(a.url.Hostname(), "3306")
	}
	cfg, err := mysqldriver.ParseDSN("tcp(" + host + ")/" + url.PathEscape(database) + "?" + a.query.Encode())
	if err != nil {
		return nil, err
	}
	cfg.User, cfg.Passwd = a.credentials()
	if cfg.Passwd != "" {
		login.Credential = "password"
	}
	if secure := a.tlsConfig(a.url.Hostname()); secure != nil {
		cfg.TLS = secure
	}
	return cfg, login.Check()
}
