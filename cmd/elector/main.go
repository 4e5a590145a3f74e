// Command elector runs programs and commands while it leads an election. docs/elector.md
// describes it; elector --help lists its flags.
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
	child.RunWatchdog() // does not return in a watchdog process
	cmdline.ReapChildren()
	cmdline.Exit(execute(os.Args[1:]))
}
