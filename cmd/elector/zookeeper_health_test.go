//go:build unix

package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// An elector leads again after its servers have returned without their data.
func TestServersLoseTheirData(t *testing.T) {
	t.Parallel()
	e := newElectors(t)
	a := e.run("a", polite)
	a.says("started")
	e.srv.Restart(zktest.LoseAll)
	a.logs("the servers have lost their data")
	a.says("started")
	a.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, a.exit())
}

func TestHealthAfterLostData(t *testing.T) {
	conn := new(zk.Conn)
	w := newWeb(t, &elector.Elector{})
	w.backend = (&zookeeper{conn: conn}).functions()
	require.Equal(t, 200, w.code("/healthz"))
	handshake.Of(conn).Lose(1)
	require.Equal(t, 503, w.code("/healthz"))
	handshake.Of(conn).Grant(time.Second)
	require.Equal(t, 200, w.code("/healthz"))
}
