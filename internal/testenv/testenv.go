// Package testenv contains the parts that the servers of tests have in common: child processes,
// their directories and ports, and TCP proxies that act as network partitions. The servers are
// in its subdirectories:
//
//	ensemble    Apache ZooKeeper
//	etcdserver  etcd
//	dbserver    PostgreSQL, Redis, NATS
//	zkproxy     a proxy that knows ZooKeeper's protocol
//	certtest    certificates, and TLS for servers without it
package testenv

import "os"

// TB contains the methods of [testing.TB] that [SkipMissing] uses.
type TB interface {
	Helper()
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// SkipMissing skips a test because a server or client that it needs is not installed. If the
// environment variable ZKTEST_REAL is "required", as in continuous integration, it fails the
// test instead.
func SkipMissing(t TB, what string, err error) {
	t.Helper()
	if os.Getenv("ZKTEST_REAL") == "required" {
		t.Fatalf("%s is not installed: %v", what, err)
	} else {
		t.Skipf("NOT TESTED with %s: %v", what, err)
	}
}
