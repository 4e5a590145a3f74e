// Package elector contains the tests and benchmarks of the command elector that need real ZooKeeper
// servers: the built binary, a real ensemble, and programs that record in a lock file that they
// run. Other tests of the command are in cmd/elector. They run on Linux.
package elector
