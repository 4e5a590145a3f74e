// Command raftlog runs a peer of a replicated log, and works on the log and its cluster:
// raftlog --help.
package main

import (
	"os"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

func main() {
	cmdline.ReapChildren()
	cmdline.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, cmdline.Stderr))
}
