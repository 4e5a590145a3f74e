// Package etcd implements elections on etcd: a [leaderelection.Candidate] that uses
// go.etcd.io/etcd/client/v3.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	...
//	election, err := etcd.NewElection(client, "/election", etcd.WithCreateNode())
//	...
//	go election.ElectLeader()
//	for status := range election.Status() {
//		...
//	}
//
// The caller owns the client: its TLS configuration, its credentials and its lifetime.
// This package changes none of them.
//
// # Keys
//
//	/election                     the election node: a key without a lease; its value is empty, or lists requests to resign
//	/election/694d81417acd4f7e    a candidate: the name is its lease in hexadecimal, the value its client name
//
// Candidates of etcd's package concurrency (Election), and therefore of "etcdctl elect",
// use the same keys and compete in the same election. The queue is ordered by the create
// revisions of the keys.
//
// # Guarantees
//
//   - At each revision of etcd, at most one candidate's key is at the head of the queue.
//     Successive leaders have increasing tokens: the token is the create revision of the
//     candidate's key.
//   - A leader is notified of the loss of its leadership before another candidate can
//     become leader. The leader measures its lease from when it sent a keepalive, and stops
//     a quarter of the TTL before etcd can expire the lease. The assumptions are: clocks
//     run at the same rate, within a few percent; the process is running; and no other
//     client deletes the key or revokes the lease.
//   - [Election.Txn] applies a transaction only during a given leadership, and
//     [Election.Guard] returns the condition for transactions of the caller. They do not
//     depend on these assumptions.
//   - All requests have a time limit. Resign returns even if etcd cannot be reached.
//
// docs/etcd.md describes the limits and why the algorithm is correct.
package etcd
