//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/cmd/internal/child"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// binary is the path of the command elector, which TestMain has built.
var binary string

// redisServer is shared by the tests of the backend changefeed.
var redisServer = dbserver.Shared{Start: func() (*dbserver.Server, error) { return dbserver.Redis() }}

func TestMain(m *testing.M) {
	child.RunWatchdog()
	var exit func(int)
	binary, exit = testenv.BuildCommand()
	// Handle HUP, because under nohup the processes that the tests start would otherwise ignore it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	goleak.VerifyTestMain(redisServer.Tests(m), goleak.Cleanup(exit))
}
