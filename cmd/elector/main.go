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
	debug.SetTraceback("crash") // a fatal signal kills the process: exit code 2 of the runtime means wrong usage
	child.RunWatchdog()         // does not return in a watchdog process
	cmdline.ReapChildren()
	cmdline.Exit(execute(os.Args[1:]))
}
