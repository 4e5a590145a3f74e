package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// columns are the columns of the table. Texts are binary, because a comparison of other types of
// text can ignore case and trailing spaces, and depends on the character set of the connection.
var columns = []string{
	"election varbinary(255)", "epoch varbinary(255)", "leader varbinary(4000)", "session varbinary(255)", "nominee varbinary(4000)",
	"term bigint", "seq bigint", "ttl bigint", "ended tinyint", "version varbinary(255)", "time datetime(6)",
}

// statements contains the SQL for one table.
type statements struct{ createTable, insert, update, read, checkInsert string }

// lockTimeoutPrefix limits how long a statement waits for a row that another client has locked, to one second. It is
// a comment that only MariaDB executes; on MySQL a statement waits for innodb_lock_wait_timeout.
const lockTimeoutPrefix = "/*M!100103 SET STATEMENT innodb_lock_wait_timeout=1, lock_wait_timeout=1 FOR */ "

// newStatements returns the statements for a table with the given quoted name.
func newStatements(table string) statements {
	return statements{
		createTable: "CREATE TABLE IF NOT EXISTS " + table + " (" + strings.Join(columns, " NOT NULL, ") + " NOT NULL, PRIMARY KEY (election)) ENGINE=InnoDB",
		insert: lockTimeoutPrefix + "INSERT INTO " + table + " (epoch, leader, session, nominee, term, seq, ttl, ended, version, election, time)" +
			" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))",
		update: lockTimeoutPrefix + "UPDATE " + table + " SET epoch = ?, leader = ?, session = ?, nominee = ?, term = ?, seq = ?, ttl = ?, ended = ?, version = ?," +
			" time = UTC_TIMESTAMP(6) WHERE election = ? AND version = ?",
		read: lockTimeoutPrefix + "SELECT epoch, leader, session, nominee, term, seq, ttl, ended, version, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', time)" +
			" FROM " + table + " WHERE election = ?",
		checkInsert: "INSERT INTO " + table + " SELECT * FROM " + table + " WHERE FALSE",
	}
}

// recordArguments returns the arguments of insert and update, without the arguments of the condition of
// update.
func (t *table) recordArguments(r changefeed.Record) []any {
	return []any{
		[]byte(r.Epoch), []byte(r.Leader), []byte(r.Session), []byte(r.Nominee), int64(r.Term), int64(r.Seq), int64(r.TTL), r.Ended,
		[]byte(r.Version), []byte(t.key),
	}
}

// maxAttempts is how often a transaction is attempted that fails because of concurrent transactions.
const maxAttempts = 10

// transact executes f in a transaction. It repeats the transaction after a deadlock, and on another connection if the
// first one was broken. It does not use [sql.Tx], whose Commit ignores ctx, and does not rely on autocommit, which the
// caller may have switched off.
func (t *table) transact(ctx context.Context, f func(conn *sql.Conn) error) (err error) {
	for range maxAttempts {
		err = t.transactOnce(ctx, f)
		if code := errorCode(err); code != deadlock && !errors.Is(err, driver.ErrBadConn) {
			break
		}
	}
	return err
}

// transactOnce calls f in one transaction on one connection.
func (t *table) transactOnce(ctx context.Context, f func(conn *sql.Conn) error) error {
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err = conn.ExecContext(ctx, "START TRANSACTION"); err == nil {
		err = f(conn)
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil { // Close the connection, so that the server rolls the transaction back.
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return err
}

// Create implements [changefeed.Store].
func (t *table) Create(ctx context.Context, blank changefeed.Record) error {
	return t.runner.Create(ctx, "create the record in table "+t.quoted, blank, t.createRecord)
}

// createRecord creates the record, and before that the table if it does not exist.
func (t *table) createRecord(ctx context.Context, blank changefeed.Record) error {
	insert := func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, t.sql.insert, t.recordArguments(blank)...)
		return err
	}
	err := t.transact(ctx, insert)
	if errorCode(err) == noSuchTable { // Create the table only now: if it exists, the privilege to create it is not required.
		if t.withoutCreate {
			return fmt.Errorf("%w: table %s does not exist, and the store is configured not to create it", changefeed.ErrNoRecord, t.quoted)
		}
		if _, err = t.db.ExecContext(ctx, t.sql.createTable); err == nil {
			err = t.transact(ctx, insert)
		}
	}
	if errorCode(err) == duplicateKey {
		return nil // The record exists already.
	}
	return err
}

// Heartbeat implements [changefeed.Store].
func (t *table) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	return t.runner.Heartbeat(ctx, "heartbeat on table "+t.quoted, prev, next, t.replaceRecord)
}

// replaceRecord replaces prev by next, or returns the reason why it has not replaced the record. Each call gives next
// a new version. So if the record has that version, this call has written it, perhaps in an attempt whose response
// was lost.
func (t *table) replaceRecord(ctx context.Context, prev, next changefeed.Record) (now changefeed.Record, err error) {
	var missing error
	err = t.transact(ctx, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, t.sql.update, append(t.recordArguments(next), []byte(prev.Version))...)
		if err == nil {
			now, err = t.readRecord(ctx, conn)
		}
		if missing = err; errors.Is(err, changefeed.ErrNoRecord) {
			return nil
		}
		return err
	})
	switch {
	case err == nil && missing != nil:
		return changefeed.Record{}, missing
	case err == nil && now.Version != next.Version:
		return changefeed.Record{}, changefeed.ErrConflict
	case errorCode(err) == noSuchTable:
		return changefeed.Record{}, fmt.Errorf("%w: table %s was deleted", changefeed.ErrNoRecord, t.quoted)
	}
	return now, err
}

// Read implements [changefeed.Store].
func (t *table) Read(ctx context.Context) (changefeed.Record, error) {
	return t.runner.Read(ctx, "read table "+t.quoted, func(ctx context.Context) (changefeed.Record, error) { return t.readRecord(ctx, t.db) })
}

// readRecord reads the record with by, which is the database or one of its connections.
func (t *table) readRecord(ctx context.Context, by interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (changefeed.Record, error) {
	d := store.Document[int64]{Format: store.Format}
	var micros int64
	err := by.QueryRowContext(ctx, t.sql.read, []byte(t.key)).
		Scan(&d.Epoch, &d.Leader, &d.Session, &d.Nominee, &d.Term, &d.Seq, &d.TTL, &d.Ended, &d.Version, &micros)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return changefeed.Record{}, changefeed.ErrNoRecord
	case errorCode(err) == noSuchTable:
		return changefeed.Record{}, fmt.Errorf("%w: table %s does not exist", changefeed.ErrNoRecord, t.quoted)
	case err != nil:
		return changefeed.Record{}, err
	}
	r, err := d.Record()
	r.Time = time.UnixMicro(micros).UTC()
	return r, err
}
