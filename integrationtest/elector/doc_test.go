// Package elector contains the tests and benchmarks of the command elector that need real ZooKeeper servers. They use
// the built binary and a real ensemble, and programs that record in a lock file when they run. The other tests of the
// command are in cmd/elector. The tests run on Linux.
package elector
