//go:build unix

package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/cmd/internal/child"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// binary is the path of the built command.
var binary string

// redisServer is shared by the tests of the backend changefeed.
var redisServer = dbserver.Shared{Start: func() (*dbserver.Server, error) { return dbserver.Redis() }}

func TestMain(m *testing.M) {
	child.RunWatchdog()
	flag.Parse()
	// Under nohup, the processes that the tests start would ignore HUP.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	// Parallel tests spend most of their time waiting for other processes.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "elector")
	if err == nil {
		binary = filepath.Join(dir, "elector")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(redisServer.Tests(m), goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}
