// Command raftlog runs a peer of a replicated log, and works on the log and its cluster:
// raftlog --help.
package main

import "os"

func main() { os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
