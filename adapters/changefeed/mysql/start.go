package mysql

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Start implements [changefeed.Store]: it checks the settings of the server and of the sessions,
// the table and the privileges. If the server can lose acknowledged writes, it returns a
// [changefeed.UnsafeError] unless [WithRisk] accepts the risk.
func (t *table) Start(ctx context.Context) error {
	return t.runner.Do(ctx, "check table "+t.quoted, func(ctx context.Context) error {
		settings := map[string]string{}
		for _, query := range []string{
			"SHOW VARIABLES WHERE Variable_name IN ('autocommit', 'tx_isolation', 'transaction_isolation', 'read_only', 'innodb_flush_log_at_trx_commit'," +
				" 'log_bin', 'sync_binlog', 'wsrep_on', 'wsrep_sync_wait', 'wsrep_provider_options')",
			"SHOW GLOBAL STATUS WHERE Variable_name IN ('Slaves_connected', 'Slaves_running')",
			"SELECT 'binlog_readers', COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'",
		} {
			if err := t.readSettings(ctx, query, settings); err != nil {
				return err
			}
		}
		if err := t.checkSettings(settings); err != nil {
			return err
		}
		if err := t.accepted.Check("mysql"+t.runner.Suffix, unsafeSettings(settings)); err != nil {
			return err
		}
		return t.checkTable(ctx)
	})
}

// readSettings adds the names and values that a query returns to settings.
func (t *table) readSettings(ctx context.Context, query string, settings map[string]string) error {
	rows, err := t.db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		settings[strings.ToLower(name)] = value
	}
	return rows.Err()
}

// checkSettings returns an error if the store does not work with the settings.
func (t *table) checkSettings(settings map[string]string) error {
	switch {
	case settings["read_only"] != "OFF":
		return t.runner.Unsuitable("read_only is %q: the server is a replica, or does not accept writes; connect to the primary", settings["read_only"])
	case settings["autocommit"] != "ON":
		return t.runner.Unsuitable("autocommit is %q, so a feed would always read the same state; let the connections set autocommit=1", settings["autocommit"])
	case settings["tx_isolation"] == "READ-UNCOMMITTED" || settings["transaction_isolation"] == "READ-UNCOMMITTED":
		return t.runner.Unsuitable("transaction_isolation is READ-UNCOMMITTED, so a feed would deliver records that are rolled back; use READ-COMMITTED or a stricter level")
	case settings["innodb_flush_log_at_trx_commit"] == "":
		return t.runner.Unsuitable("the server has no InnoDB, and the store needs an engine with transactions; enable InnoDB")
	}
	return nil
}

// unsafeSettings returns the settings with which a server can lose acknowledged writes.
func unsafeSettings(settings map[string]string) (found []changefeed.UnsafeSetting) {
	add := func(name string, safe bool, risk changefeed.Risk, remedy string) {
		if !safe {
			found = append(found, changefeed.UnsafeSetting{Name: name, Value: settings[name], Risk: risk, Remedy: remedy})
		}
	}
	is := func(name string, values ...string) bool { return slices.Contains(values, settings[name]) }
	// The value 3 of MariaDB is at least as durable as 1.
	add("innodb_flush_log_at_trx_commit", is("innodb_flush_log_at_trx_commit", "1", "3"), changefeed.RiskPowerLoss, "set it to 1")
	// Without this setting, a crash can lose the end of the binary log, and the server then rolls back the
	// transactions that the log does not contain.
	add("sync_binlog", is("log_bin", "OFF", "") || is("sync_binlog", "1"), changefeed.RiskPowerLoss, "set it to 1, or disable log_bin")
	const replicas = "replicas receive a write after it was acknowledged; use a server without replicas, or Galera with wsrep_sync_wait"
	if is("slaves_connected", "0", "") {
		add("binlog_readers", is("binlog_readers", "0"), changefeed.RiskFailover, replicas)
	} else {
		add("slaves_connected", false, changefeed.RiskFailover, replicas)
	}
	add("slaves_running", is("slaves_running", "0", ""), changefeed.RiskFailover, "the server is a replica that accepts writes; connect to the primary")
	if is("wsrep_on", "ON", "1") {
		wait, _ := strconv.Atoi(settings["wsrep_sync_wait"])
		add("wsrep_sync_wait", wait&1 != 0, changefeed.RiskFailover, "a node can answer without the writes that another one has acknowledged; let the connections set wsrep_sync_wait=1")
		options := settings["wsrep_provider_options"]
		alone := strings.Contains(options, "pc.ignore_sb = true") || strings.Contains(options, "pc.ignore_quorum = true")
		settings["wsrep_provider_options"] = "pc.ignore_sb or pc.ignore_quorum"
		add("wsrep_provider_options", !alone, changefeed.RiskFailover, "both halves of a divided cluster accept writes; set both options to false")
	}
	return found
}

// checkTable checks the table and the privileges, unless the table must be created. It executes
// statements that change nothing.
func (t *table) checkTable(ctx context.Context) error {
	var engine, keys, existing string
	err := t.db.QueryRowContext(ctx, `SELECT COALESCE(MAX(ENGINE), IF(COUNT(*) = 0, '', 'none')),
			COALESCE(GROUP_CONCAT(IF(COLUMN_KEY = 'PRI', COLUMN_NAME, NULL)), 'nothing'),
			COALESCE(GROUP_CONCAT(COLUMN_NAME, ' ', DATA_TYPE, COALESCE(CONCAT('(', COALESCE(CHARACTER_OCTET_LENGTH, DATETIME_PRECISION), ')'), '')), '')
		FROM information_schema.TABLES JOIN information_schema.COLUMNS USING (TABLE_SCHEMA, TABLE_NAME)
		WHERE TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ?`, t.schema, t.name).Scan(&engine, &keys, &existing)
	missing := slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return slices.Contains(strings.Split(existing, ","), c) })
	switch {
	case err != nil:
		return err
	case engine == "" && t.withoutCreate:
		return t.runner.Unsuitable("table %s does not exist, and the store is configured not to create it; create it as the package documentation describes", t.quoted)
	case engine == "":
		return nil
	case engine != "InnoDB":
		return t.runner.Unsuitable("the engine of table %s is %s, and the store needs transactions; use ALTER TABLE %s ENGINE=InnoDB", t.quoted, engine, t.quoted)
	case len(missing) > 0:
		return t.runner.Unsuitable("table %s lacks columns: %s; add them or use another table", t.quoted, strings.Join(missing, ", "))
	case keys != "election":
		return t.runner.Unsuitable("the primary key of table %s is %s; use the column election alone", t.quoted, keys)
	}
	return t.transact(ctx, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, t.sql.update, append(t.recordArguments(changefeed.Record{}), []byte{})...)
		if err != nil {
			return err
		}
		if _, err = t.readRecord(ctx, conn); errors.Is(err, changefeed.ErrNoRecord) {
			_, err = conn.ExecContext(ctx, t.sql.checkInsert)
		}
		return err
	})
}
