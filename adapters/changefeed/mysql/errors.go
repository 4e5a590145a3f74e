package mysql

import (
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

const (
	privileges = "grant SELECT, INSERT and UPDATE on the table, and CREATE if the store must create it"
	readOnly   = "connect to the primary, and let it accept writes"
	login      = "correct the user and the password of the connections, and let the user log in"
	layout     = "the package documentation describes the layout"
)

// adviceByCode contains advice on how to resolve permanent failures. The keys are the server's error numbers.
var adviceByCode = map[uint16]string{
	1044: privileges, 1142: privileges, 1143: privileges, 1227: privileges,
	1045: login, 1130: login, 1698: login, 1820: login, 3118: login, 4151: login,
	1046: "name a database in the address of the connections, or before the table",
	1049: "create the database or use another",
	1290: readOnly, 1792: readOnly, 1836: readOnly,
	1054: "the table lacks a column; " + layout,
	1406: "a column is too short for the record; " + layout,
	1366: "a column has another type; " + layout,
	1364: "additional columns must have defaults or permit NULL",
	1665: "set binlog_format to ROW or MIXED, or transaction_isolation to REPEATABLE-READ",
}

const (
	duplicateKey uint16 = 1062
	noSuchTable  uint16 = 1146
	deadlock     uint16 = 1213
)

// errorCode returns the number of an error of the server, and 0 for any other error.
func errorCode(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// errClosedDB is the text of an error that database/sql does not export.
const errClosedDB = "sql: database is closed"

// meaningOf returns the error of package changefeed that corresponds to an error of the driver, or
// nil if there is none.
func meaningOf(err error) error {
	if err.Error() == errClosedDB {
		return fmt.Errorf("%w: %w: the sql.DB was closed", changefeed.ErrUnsuitable, leaderelection.ErrConnClosed)
	}
	if advice, ok := adviceByCode[errorCode(err)]; ok {
		return fmt.Errorf("%w: %s", changefeed.ErrUnsuitable, advice)
	}
	return nil
}
