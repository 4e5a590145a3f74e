//go:build unix

package mysql_test

import (
	"database/sql"
	"errors"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/sqlfence"
)

// testFence runs a test with connections that have different settings of the driver.
func testFence(t *testing.T, run func(t *testing.T, db *fixture.FencedDB)) {
	for name, change := range map[string]func(*driver.Config){
		"Default":   nil,
		"FoundRows": func(c *driver.Config) { c.ClientFoundRows, c.InterpolateParams = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, newFencedDB(t, connect(t, shared.Get(t).Addr(), change)))
		})
	}
}

func newFencedDB(t *testing.T, db *sql.DB) *fixture.FencedDB {
	execSQL(t, db, "DROP TABLE IF EXISTS fences, amounts, entries")
	execSQL(t, db, "CREATE TABLE fences (resource varbinary(255) PRIMARY KEY, token bigint NOT NULL, uses bigint NOT NULL) ENGINE=InnoDB")
	return &fixture.FencedDB{DB: db, Dialect: sqlfence.MySQL, Table: "test.fences", MayRepeat: func(err error) bool {
		var e *driver.MySQLError
		return errors.As(err, &e) && e.Number == 1213 // deadlock
	}}
}

func TestFence_PreventsLostUpdates(t *testing.T) { testFence(t, fixture.RunNoLostUpdate) }

func TestFence_ElectionsDoNotWaitForEachOther(t *testing.T) { testFence(t, fixture.RunTwoElections) }

func TestFence_GuardRejectsSmallerTokenAndEndedGrant(t *testing.T) { testFence(t, fixture.RunGuard) }
