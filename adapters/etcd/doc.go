// Package etcd is an election on etcd: a [leaderelection.Candidate] over
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
// The client is the caller's: its TLS, its credentials, its end. Nothing of it is changed.
//
// # Keys
//
//	/election                     the election node: a key without a lease
//	/election/694d81417acd4f7e    a candidate: the name is its lease, in hex; the value its client name
//
// Candidates are those of etcd's own concurrency.Election, which stand in the same line, as
// does `etcdctl elect`. The line is in the order of the keys' create revisions.
//
// # What is guaranteed
//
//   - In etcd's history at most one candidate's key is the first. Successive leaders have
//     greater tokens: the token is the create revision of the candidate's key.
//   - A leader is told that its leadership is gone before another candidate can have it.
//     Its lease, as the leader counts it, ends a quarter of the TTL before etcd can expire it.
//     This supposes that clocks run at the same rate, within some percent; that the process
//     runs; and that nobody but etcd's own expiry takes the key or the lease away.
//   - [Election.Txn] applies a transaction only while the candidate leads, and [Election.Guard]
//     is the condition for one's own. They suppose nothing.
//   - Every request has a limit. A candidate that cannot reach etcd ends when it is told to.
//
// The limits, and why this is right: docs/etcd.md.
package etcd
