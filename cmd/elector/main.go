// Command elector runs programs and commands while it leads an election. docs/elector.md
// describes it; elector --help lists its flags.
package main

import (
	"os"

	"github.com/go-leaderelection/leaderelection/cmd/internal/child"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

func main() {
	child.RunWatchdog() // does not return in a watchdog process
	cmdline.ReapChildren()
	cmdline.Exit(execute(os.Args[1:]))
}
