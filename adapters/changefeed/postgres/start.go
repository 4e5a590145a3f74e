package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Start implements [changefeed.Store]: it checks the server, its settings and standbys,
// the table and the privileges, and, without [WithPoll], that a notification passes from the
// pool to a listening connection. If the server can lose acknowledged writes, Start returns a
// [changefeed.UnsafeError] unless [WithRisk] accepts the risk.
func (s *Store) Start(ctx context.Context) error {
	if err := s.runner.Do(ctx, "check table "+s.table, s.checkServer); err != nil {
		return err
	}
	if s.polled != nil {
		return nil
	}
	return s.runner.Do(ctx, "check that notifications are delivered", s.checkNotifications)
}

// checkServer checks the server, its settings and standbys, and the table or the privilege to
// create it.
func (s *Store) checkServer(ctx context.Context) error {
	var version int
	var readOnly bool
	var tableOID uint32
	var mayCreate *bool // nil if the schema does not exist
	err := s.queryRow(ctx, `SELECT current_setting('server_version_num')::int,
			pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean,
			coalesce(to_regclass($1::text)::oid::bigint, 0),
			has_schema_privilege(to_regnamespace(coalesce(nullif($2::text, ''), quote_ident(current_schema())))::oid, 'CREATE')`,
		[]any{s.table, s.schema()}, []any{&version, &readOnly, &tableOID, &mayCreate})
	switch {
	case err != nil:
		return err
	case version < 11_00_00:
		return s.runner.Unsuitable("the server has version %d; version 11 or later is required", version/10000)
	case readOnly:
		return s.runner.Unsuitable("the pool connects to a standby, or its sessions are read-only; connect to the primary (target_session_attrs=read-write)")
	}
	if err := s.checkSafety(ctx, version); err != nil {
		return err
	}
	switch {
	case tableOID != 0:
		return s.checkTable(ctx, tableOID)
	case s.withoutCreate:
		return s.runner.Unsuitable("table %s does not exist, and the store is configured not to create it; create it as the package documentation describes", s.table)
	case mayCreate == nil:
		return s.runner.Unsuitable("the schema of table %s does not exist; create it or set search_path", s.table)
	case !*mayCreate:
		return s.runner.Unsuitable("table %s does not exist, and the privilege to create it is missing; create it or grant CREATE on its schema", s.table)
	}
	return nil
}

// schema returns the quoted schema in the name of the table, or "" if the name does not contain one. The separator is
// the first dot that follows an even number of quotes, because quotes in names are doubled.
func (s *Store) schema() string {
	quotes := 0
	for i, c := range s.table {
		switch {
		case c == '"':
			quotes++
		case c == '.' && quotes%2 == 0:
			return s.table[:i]
		}
	}
	return ""
}

func (s *Store) checkTable(ctx context.Context, oid uint32) error {
	var kind, persistence string
	var mayUpdate, mayInsert, unique bool
	var missing []string
	err := s.queryRow(ctx, `SELECT c.relkind::text, c.relpersistence::text,
			has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'UPDATE'),
			has_table_privilege(c.oid, 'INSERT'),
			EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
				WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
				AND i.indnkeyatts = 1 AND a.attname = 'election'),
			ARRAY(SELECT needed.name || ' ' || needed.type
				FROM (VALUES ('election', 'text'), ('epoch', 'text'), ('leader', 'text'), ('session', 'text'), ('nominee', 'text'),
					('term', 'bigint'), ('seq', 'bigint'), ('ttl', 'bigint'), ('ended', 'boolean'), ('version', 'text'),
					('time', 'timestamp with time zone')) AS needed (name, type)
				WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND NOT a.attisdropped
					AND a.attname = needed.name AND format_type(a.atttypid, a.atttypmod) = needed.type))
		FROM pg_class c WHERE c.oid = $1::oid`, []any{oid}, []any{&kind, &persistence, &mayUpdate, &mayInsert, &unique, &missing})
	switch {
	case err != nil:
		return err
	case kind != "r" && kind != "p":
		return s.runner.Unsuitable("%s is not a table", s.table)
	case persistence != "p":
		return s.runner.Unsuitable("table %s is unlogged or temporary, so a crash would empty it; use ALTER TABLE %s SET LOGGED", s.table, s.table)
	case len(missing) > 0:
		return s.runner.Unsuitable("table %s lacks columns: %s; add them or use another table", s.table, strings.Join(missing, ", "))
	case !unique:
		return s.runner.Unsuitable("table %s has no unique index on the column election alone; make it the primary key", s.table)
	case !mayUpdate:
		return s.runner.Unsuitable("the privileges SELECT and UPDATE on table %s are missing; grant both", s.table)
	case mayInsert:
		return nil
	}
	if _, err := s.readRecord(ctx); !errors.Is(err, changefeed.ErrNoRecord) {
		return err
	}
	return s.runner.Unsuitable("the privilege INSERT on table %s, which has no record of %q yet, is missing; grant it", s.table, s.key)
}

// checkNotifications returns an error if a notification of a request does not reach a listening connection, for
// example because of a pooler in transaction mode.
func (s *Store) checkNotifications(ctx context.Context) error {
	channel := "changefeed_start_" + rand.Text()
	sub := s.shared.listener.subscribe(channel)
	defer s.shared.listener.unsubscribe(sub)
	if err := sub.waitEstablished(ctx); err != nil {
		return err
	}
	if err := s.exec(ctx, `SELECT pg_notify($1::text, '')`, channel); err != nil {
		return err
	}
	limit := 2 * s.quiet
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-sub.ended:
		return sub.err
	case <-sub.notifications:
		return nil
	case <-timer.C:
		return s.runner.Unsuitable("a notification from the pool did not reach a listening connection within %v; "+transactionMode, limit)
	}
}
