// Systems compares how long leader elections on different systems take to replace a leader: this
// library on ZooKeeper and on etcd, etcd's package concurrency, and client-go's leaderelection,
// which Kubernetes operators use.
//
//	go run . -handovers 20 -crashes 5 -timeout 4s
//
// Two candidates compete. A hand-over is the time from just before the leader's resignation until
// its successor's program is notified that it leads. A fail-over is the same after the leader's
// connections are closed, but not its session, as if its process had been killed. Each is measured
// in absolute time, because the systems send different requests to different servers; the phase of
// the leader's timers at that moment is random.
//
// The ZooKeeper server is a separate process, started by internal/testenv/ensemble. The etcd
// server runs in this process, without syncing to disk. client-go's API server is leases.go: it
// keeps leases in memory, which is faster than any real API server.
//
// The package is a separate module, so that nothing else requires Kubernetes' modules.
package main
