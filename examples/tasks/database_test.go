//go:build unix

package tasks

import (
	"testing"

	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

func TestDatabase(t *testing.T) {
	srv := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Postgres("fsync=on") })
	h := &harness{
		T: t, dir: build(t, "./database"),
		server: "-db=postgres://postgres@" + srv.Addr() + "/postgres?sslmode=disable",
	}
	first := h.start("database", "-name=first")
	first.waitForLine("first leads with token")
	second := h.start("database", "-name=second")
	first.interrupt()
	second.waitForLine("second leads with token")
	second.interrupt()
}
