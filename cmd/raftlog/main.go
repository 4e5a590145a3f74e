// Command raftlog runs a peer of a replicated log, and manages the log and its cluster. See raftlog --help.
package main

import (
	"os"
	"runtime/debug"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

func main() {
	// After a panic, kill the process by a signal, because exit code 2 of the runtime would mean wrong
	// usage.
	debug.SetTraceback("crash")
	cmdline.ReapChildren()
	cmdline.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, cmdline.Stderr))
}
