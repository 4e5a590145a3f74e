// Command elector runs programs and commands while it leads an election. docs/elector.md
// describes it; elector --help lists its flags.
package main

import (
	"os"

	"github.com/go-leaderelection/leaderelection/cmd/internal/child"
)

func main() {
	child.RunWatchdog() // does not return in a watchdog process
	os.Exit(execute(os.Args[1:]))
}
