// Package leaderelection implements leader election on ZooKeeper: of any number of replicas
// of a program exactly one is the leader, and each replica receives its role on a Go
// channel.
//
// # Guarantees
//
//   - At every point of ZooKeeper's history at most one candidate of an election is at the
//     head of the queue of candidates. Successive leaders have strictly increasing fencing
//     tokens ([Leadership.Token]).
//   - A leader learns that it has lost leadership before another candidate can gain it.
//     [Leadership.Done] is closed when the leader's lease expires, and the lease expires
//     before the ensemble can expire the session, even if the leader's server is
//     partitioned but still answers. This assumes that clocks run at about the same rate,
//     that the servers grant a session timeout of at least two of their ticks, and that the
//     process is not stopped. It does not hold if a client removes the leader's znode: an
//     operator that deletes it, a program that closes its connection before the candidate
//     has resigned, or a client that deletes the election and creates it again while the
//     old leader is unreachable.
//   - [Leadership.Multi] applies a ZooKeeper transaction only during the leadership. This
//     guarantee needs no assumption.
//   - A system outside ZooKeeper is protected from a leader that was stopped and acts too
//     late, if that system rejects tokens smaller than the greatest it has seen.
//   - No call blocks indefinitely: each request to ZooKeeper is bounded by a timeout, by a
//     context or by a channel that is closed, and the Status channel of every candidacy is
//     closed at its end.
//
// # Usage
//
// The caller opens the connection, creates the election node, and remains the owner of
// both:
//
//	conn, _, err := zkdial.Connect(servers, 4*time.Second) // or zk.Connect
//	...
//	election, err := leaderelection.NewElection(conn, "/election")
//	...
//	go election.ElectLeader()
//	for status := range election.Status() {
//		switch {
//		case status.Err != nil: // the candidacy is over
//		case status.Role == leaderelection.Leader:
//			go lead(status.Leadership)
//		}
//	}
//
// Work that only the leader may do should stop when status.Leadership.Done() is closed.
//
// # Loss of the connection
//
// A leader that cannot reach the ensemble remains the leader until its lease expires. The
// first lease ends a third of the session timeout after the candidate sent the request that
// elected it. Later leases end at most half of the session timeout after the leader sent
// the last write that ZooKeeper acknowledged. When the lease expires, the leader becomes
// [Suspended]. If its session still exists after a reconnect, it becomes leader again, with
// the same token. If the session has expired, the candidacy ends with [ErrSessionExpired],
// or restarts if the election was created with [WithRejoin].
//
// Package zkdial opens connections that recover when the servers have lost their data. See
// docs/servers.md for supported servers, and docs/design.md for the algorithm and why it is correct.
package leaderelection
