// Command elector runs programs and commands while an instance leads an election. docs/elector.md describes the
// command; elector --help lists the flags.
package main

import (
	"os"
	"runtime/debug"

	"github.com/go-leaderelection/leaderelection/cmd/internal/child"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

func main() {
	// After a panic, kill the process by a signal, because exit code 2 of the runtime would mean wrong
	// usage.
	debug.SetTraceback("crash")
	child.RunWatchdog() // in a watchdog process, RunWatchdog does not return
	cmdline.ReapChildren()
	cmdline.Exit(execute(os.Args[1:]))
}
