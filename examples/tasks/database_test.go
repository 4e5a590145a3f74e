//go:build unix

package tasks

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestDatabase fails if two replicas that start at the same time on an empty database do not lead in turn.
func TestDatabase(t *testing.T) {
	srv := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Postgres("fsync=on") })
	h := &harness{
		T: t, dir: build(t, "./database"),
		server: "-db=postgres://postgres@" + srv.Addr() + "/postgres?sslmode=disable",
	}
	first, second := h.start("database", "-name=first"), h.start("database", "-name=second")
	leader, follower, next := first, second, "second leads with token"
	if h.waitForLeader(first, second) == second {
		leader, follower, next = second, first, "first leads with token"
	}
	leader.interrupt()
	follower.waitForLine(next)
	follower.interrupt()
}

// waitForLeader waits until one of two replicas leads, and returns it. Both must still run.
func (h *harness) waitForLeader(first, second *program) *program {
	h.Helper()
	limit := time.After(patience)
	for {
		p := first
		var line string
		var open bool
		select {
		case line, open = <-first.lines:
		case line, open = <-second.lines:
			p = second
		case <-limit:
			require.Fail(h, "no replica leads")
		}
		require.True(h, open, "%s has exited", p.cmd.Args)
		if strings.Contains(line, "leads with token") {
			return p
		}
		h.Log(line)
	}
}
