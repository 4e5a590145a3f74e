// Package testenv contains the parts that the servers and the commands of tests have in common: child
// processes, their output, directories and ports, their certificates, and TCP proxies that act as network
// partitions or add TLS. The servers are in its subdirectories:
//
//	ensemble    Apache ZooKeeper
//	dbserver    PostgreSQL, MariaDB, Redis, NATS, etcd
//	zkproxy     a proxy that knows ZooKeeper's protocol
package testenv

import (
	"os"
	"testing"
)

// SkipMissing skips a test that needs a server or a client that is not installed. If the environment variable
// ZKTEST_REAL is "required", as in continuous integration, SkipMissing fails the test instead.
func SkipMissing(t testing.TB, what string, err error) {
	t.Helper()
	if os.Getenv("ZKTEST_REAL") == "required" {
		t.Fatalf("%s is not installed: %v", what, err)
	} else {
		t.Skipf("NOT TESTED with %s: %v", what, err)
	}
}
