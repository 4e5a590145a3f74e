package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/codec"
)

// statements are the SQL for one table.
type statements struct{ create, insert, update, read string }

// Parts of statements. Parameters have types, for pools in the simple protocol.
const (
	// durable makes the commit wait for the disks of the server and of its synchronous
	// standbys if the session's setting does not. The stricter remote_apply is kept.
	durable = `durable AS (SELECT CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
		THEN set_config('synchronous_commit', 'on', true) END AS done)`
	// told sends the record, or, where it does not fit, nothing, upon which it is read.
	// The channel has the table's number: equal names in two schemas are two tables.
	told = `message AS (SELECT (extract(epoch FROM written) * 1000000)::bigint::text || ' ' || $13::text AS body FROM written),
		told AS (SELECT pg_notify('changefeed_' || to_regclass($14::text)::oid::text || '_' || $15::text,
			CASE WHEN octet_length(body) < 8000 THEN body ELSE '' END) FROM message)`
	// outcome also makes sure that all the parts are carried out.
	outcome = `SELECT (SELECT written FROM written), EXISTS (SELECT FROM %s WHERE election = $1::text),
		(SELECT count(*) FROM told), (SELECT count(done) FROM durable)`
)

func statementsFor(table string) statements {
	replace := func(sql string) string { return strings.ReplaceAll(sql, "%s", table) }
	return statements{
		create: replace(`CREATE TABLE IF NOT EXISTS %s (election text PRIMARY KEY,
			epoch text NOT NULL, leader text NOT NULL, session text NOT NULL, nominee text NOT NULL,
			term bigint NOT NULL, seq bigint NOT NULL, ttl bigint NOT NULL, ended boolean NOT NULL,
			version text NOT NULL, "time" timestamptz NOT NULL)`),
		insert: replace(`WITH ` + durable + `, written AS (
			INSERT INTO %s (election, epoch, leader, session, nominee, term, seq, ttl, ended, version, "time")
			SELECT $1::text, $3::text, $4::text, $5::text, $6::text, $7::bigint, $8::bigint, $9::bigint, $10::boolean, $11::text, clock_timestamp()
			WHERE $2::text = '' AND $12::text = ''
			ON CONFLICT (election) DO NOTHING RETURNING "time" AS written), ` + told + ` ` + outcome),
		update: replace(`WITH ` + durable + `, written AS (
			UPDATE %s SET epoch = $3::text, leader = $4::text, session = $5::text, nominee = $6::text,
				term = $7::bigint, seq = $8::bigint, ttl = $9::bigint, ended = $10::boolean, version = $11::text, "time" = clock_timestamp()
			WHERE election = $1::text AND version = $2::text AND epoch = $12::text
			RETURNING "time" AS written), ` + told + ` ` + outcome),
		read: replace(`SELECT epoch, leader, session, nominee, term, seq, ttl, ended, version, "time" FROM %s WHERE election = $1::text`),
	}
}

// Create implements [changefeed.Store].
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	both, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := codec.CheckColumns(blank); err != nil {
		return err
	}
	// Often there is a table, and then no right to make one is needed.
	for range 10 {
		_, _, _, err = s.write(both, s.sql.insert, changefeed.Record{}, blank)
		if code(err) != undefinedTable {
			break
		}
		if s.existing {
			return fmt.Errorf("%w: table %s does not exist, and the store is configured not to create it", changefeed.ErrNoRecord, s.name)
		}
		_, err = s.pool.Exec(both, s.sql.create)
		// IF NOT EXISTS does not help those who look at the same time: all but one find
		// a name taken in the catalogue, when the one has committed.
		if c := code(err); err != nil && c != duplicateTable && c != duplicateObject && c != uniqueViolation &&
			c != serializationFailure && c != deadlockDetected {
			break
		}
	}
	return s.explain(ctx, "create the record in table "+s.name, err)
}

// Heartbeat implements [changefeed.Store].
func (s *Store) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	both, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return changefeed.Record{}, err
	}
	defer end()
	if err := codec.CheckColumns(next); err != nil {
		return changefeed.Record{}, err
	}
	r, written, exists, err := s.write(both, s.sql.update, prev, next)
	switch {
	case written:
		return r, nil
	case code(err) == undefinedTable:
		return changefeed.Record{}, fmt.Errorf("%w: table %s was deleted", changefeed.ErrNoRecord, s.name)
	case code(err) == serializationFailure, code(err) == deadlockDetected, err == nil && exists:
		return changefeed.Record{}, changefeed.ErrConflict
	case err == nil:
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	return changefeed.Record{}, s.explain(ctx, "heartbeat on table "+s.name, err)
}

// write carries out insert or update, and returns what was written, or false where
// nothing was, and then whether there is a record.
func (s *Store) write(ctx context.Context, sql string, prev, next changefeed.Record) (r changefeed.Record, written, exists bool, err error) {
	next.Version = rand.Text()
	var at *time.Time
	var told, made int
	// Under stricter isolations than the default the server may give up a statement, and
	// says so: nothing was written, and whether the record was changed is seen next time.
	for range 10 {
		err = s.pool.QueryRow(ctx, sql,
			s.key, prev.Version, next.Epoch, next.Leader, next.Session, next.Nominee, int64(next.Term), int64(next.Seq),
			int64(next.TTL), next.Ended, next.Version, prev.Epoch, codec.EncodeMessage(next), s.name, s.hash(),
		).Scan(&at, &exists, &told, &made)
		if c := code(err); c != serializationFailure && c != deadlockDetected {
			break
		}
	}
	if err != nil || at == nil {
		return changefeed.Record{}, false, exists, err
	}
	next.Time = at.UTC()
	return next, true, true, nil
}

// Read implements [changefeed.Store].
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	both, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return changefeed.Record{}, err
	}
	defer end()
	r, err := s.read(both, s.pool)
	if errors.Is(err, changefeed.ErrNoRecord) {
		return changefeed.Record{}, err
	}
	return r, s.explain(ctx, "read table "+s.name, err)
}

// querier is a pool or a connection.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (s *Store) read(ctx context.Context, on querier) (changefeed.Record, error) {
	var r changefeed.Record
	var term, seq, ttl int64
	err := on.QueryRow(ctx, s.sql.read, s.key).Scan(&r.Epoch, &r.Leader, &r.Session, &r.Nominee,
		&term, &seq, &ttl, &r.Ended, &r.Version, &r.Time)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return changefeed.Record{}, changefeed.ErrNoRecord
	case code(err) == undefinedTable:
		return changefeed.Record{}, fmt.Errorf("%w: table %s does not exist", changefeed.ErrNoRecord, s.name)
	case err != nil:
		return changefeed.Record{}, err
	}
	r.Term, r.Seq, r.TTL, r.Time = uint64(term), uint64(seq), time.Duration(ttl), r.Time.UTC()
	return r, nil
}
