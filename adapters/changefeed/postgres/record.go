package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// statements contains the SQL for one table.
type statements struct{ createTable, insert, update, read string }

// These constants are parts of SQL statements. Parameters have types because pools may use the simple protocol.
const (
	// microseconds is the time of a record as a number, because the text of a time depends on
	// DateStyle.
	microseconds = `(extract(epoch FROM "time") * 1000000)::bigint`
	// durableCTE makes the commit wait until the write is on the disks of the server and of its synchronous
	// standbys, even if the session's setting does not. It keeps remote_apply, which is stricter.
	durableCTE = `durable AS (SELECT CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
		THEN set_config('synchronous_commit', 'on', true) END AS done)`
	// notifiedCTE sends the record in a notification. If the record is too long, the notification
	// is empty, and followers read the record. The channel contains the number of the table,
	// because tables in different schemas can have the same name.
	notifiedCTE = `message AS (SELECT written::text || ' ' || $13::text AS body FROM written),
		notified AS (SELECT pg_notify('changefeed_' || to_regclass($14::text)::oid::text || '_' || $15::text,
			CASE WHEN octet_length(body) < 8000 THEN body ELSE '' END) FROM message)`
	// outcomeQuery returns the time of the write, or NULL if nothing was written, and whether the record
	// exists. It refers to all other parts, because the server executes only parts that are referred to.
	outcomeQuery = `SELECT (SELECT written FROM written), EXISTS (SELECT FROM %s WHERE election = $1::text),
		(SELECT count(*) FROM notified), (SELECT count(done) FROM durable)`
)

// newStatements returns the statements for a table with the given quoted name.
func newStatements(table string) statements {
	forTable := func(sql string) string { return strings.ReplaceAll(sql, "%s", table) }
	return statements{
		createTable: forTable(`CREATE TABLE IF NOT EXISTS %s (election text PRIMARY KEY,
			epoch text NOT NULL, leader text NOT NULL, session text NOT NULL, nominee text NOT NULL,
			term bigint NOT NULL, seq bigint NOT NULL, ttl bigint NOT NULL, ended boolean NOT NULL,
			version text NOT NULL, "time" timestamptz NOT NULL)`),
		insert: forTable(`WITH ` + durableCTE + `, written AS (
			INSERT INTO %s (election, epoch, leader, session, nominee, term, seq, ttl, ended, version, "time")
			SELECT $1::text, $3::text, $4::text, $5::text, $6::text, $7::bigint, $8::bigint, $9::bigint, $10::boolean, $11::text, clock_timestamp()
			WHERE $2::text = '' AND $12::text = ''
			ON CONFLICT (election) DO NOTHING RETURNING ` + microseconds + ` AS written), ` + notifiedCTE + ` ` + outcomeQuery),
		update: forTable(`WITH ` + durableCTE + `, written AS (
			UPDATE %s SET epoch = $3::text, leader = $4::text, session = $5::text, nominee = $6::text,
				term = $7::bigint, seq = $8::bigint, ttl = $9::bigint, ended = $10::boolean, version = $11::text, "time" = clock_timestamp()
			WHERE election = $1::text AND version = $2::text AND epoch = $12::text
			RETURNING ` + microseconds + ` AS written), ` + notifiedCTE + ` ` + outcomeQuery),
		read: forTable(`SELECT epoch, leader, session, nominee, term, seq, ttl, ended, version, ` + microseconds + ` FROM %s WHERE election = $1::text`),
	}
}

// Create implements [changefeed.Store].
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	return s.runner.Create(ctx, "create the record in table "+s.table, blank, s.createRecord)
}

// createRecord creates the record, and before that the table if it does not exist.
func (s *Store) createRecord(ctx context.Context, blank changefeed.Record) (err error) {
	// Insert first: if the table exists, the privilege to create it is not required.
	for range maxAttempts {
		_, _, err = s.writeRecord(ctx, s.sql.insert, changefeed.Record{}, blank)
		if errorCode(err) != undefinedTable {
			break
		}
		if s.withoutCreate {
			return fmt.Errorf("%w: table %s does not exist, and the store is configured not to create it", changefeed.ErrNoRecord, s.table)
		}
		err = s.exec(ctx, s.sql.createTable)
		// Despite IF NOT EXISTS, concurrent statements fail: when the first one commits, the others
		// find the name of its table in the catalog.
		if c := errorCode(err); err != nil && c != duplicateTable && c != duplicateObject && c != uniqueViolation &&
			c != serializationFailure && c != deadlockDetected {
			break
		}
	}
	return err
}

// Heartbeat implements [changefeed.Store].
func (s *Store) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	return s.runner.Heartbeat(ctx, "heartbeat on table "+s.table, prev, next, s.replaceRecord)
}

// replaceRecord replaces prev by next, or returns the reason why it has not replaced the record.
func (s *Store) replaceRecord(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	r, exists, err := s.writeRecord(ctx, s.sql.update, prev, next)
	switch {
	case err == nil && r.Version != "":
		return r, nil
	case errorCode(err) == undefinedTable:
		return changefeed.Record{}, fmt.Errorf("%w: table %s was deleted", changefeed.ErrNoRecord, s.table)
	case errorCode(err) == serializationFailure, errorCode(err) == deadlockDetected, err == nil && exists:
		return changefeed.Record{}, changefeed.ErrConflict
	case err == nil:
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	return changefeed.Record{}, err
}

// maxAttempts is how often a statement is attempted that fails because of concurrent statements.
const maxAttempts = 10

// writeRecord executes insert or update. It returns the written record. If nothing was written, it returns a record
// without a version, and exists reports whether the election has a record.
func (s *Store) writeRecord(ctx context.Context, sql string, prev, next changefeed.Record) (r changefeed.Record, exists bool, err error) {
	var micros *int64
	var notified, durable int
	// At stricter isolation levels than the default, the server may abort a statement because of another
	// one. Then nothing was written, and the next attempt shows whether the record has changed.
	for range maxAttempts {
		err = s.queryRow(ctx, sql, []any{
			s.key, prev.Version, next.Epoch, next.Leader, next.Session, next.Nominee, int64(next.Term), int64(next.Seq),
			int64(next.TTL), next.Ended, next.Version, prev.Epoch, store.EncodeMessage(next), s.table, s.keyHash(),
		}, []any{&micros, &exists, &notified, &durable})
		if c := errorCode(err); c != serializationFailure && c != deadlockDetected {
			break
		}
	}
	if err != nil || micros == nil {
		return changefeed.Record{}, exists, err
	}
	next.Time = time.UnixMicro(*micros).UTC()
	return next, true, nil
}

// Read implements [changefeed.Store].
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	return s.runner.Read(ctx, "read table "+s.table, s.readRecord)
}

func (s *Store) readRecord(ctx context.Context) (changefeed.Record, error) {
	d := store.Document[int64]{Format: store.Format}
	var micros int64
	err := s.queryRow(ctx, s.sql.read, []any{s.key}, []any{
		&d.Epoch, &d.Leader, &d.Session, &d.Nominee, &d.Term, &d.Seq, &d.TTL, &d.Ended, &d.Version, &micros,
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return changefeed.Record{}, changefeed.ErrNoRecord
	case errorCode(err) == undefinedTable:
		return changefeed.Record{}, fmt.Errorf("%w: table %s does not exist", changefeed.ErrNoRecord, s.table)
	case err != nil:
		return changefeed.Record{}, err
	}
	r, err := d.Record()
	r.Time = time.UnixMicro(micros).UTC()
	return r, err
}
