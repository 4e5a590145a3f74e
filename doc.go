// Package leaderelection implements leader election on ZooKeeper: of any number of replicas
// of a program at most one is the leader at any time, and each replica receives its role on
// a Go channel.
//
//	conn, _, err := zkdial.Connect(servers, 4*time.Second) // or zk.Connect
//	...
//	election, err := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode())
//	...
//	go election.ElectLeader()
//	for status := range election.Status() {
//		switch {
//		case status.Err != nil: // the candidacy is over
//		case status.Role == leaderelection.Leader:
//			go lead(status.Leadership) // until its Done channel is closed
//		}
//	}
//
// # Guarantees
//
//   - At every point of ZooKeeper's history at most one candidate is at the head of the
//     queue. Successive leaders have strictly increasing fencing tokens
//     ([Leadership.Token]). A system that rejects tokens smaller than the greatest it has
//     seen is protected from a former leader.
//   - A leader learns that it has lost leadership before another candidate can gain it:
//     [Leadership.Done] is closed when the leader's lease expires, and the lease expires
//     before the ensemble can expire the session, even if the leader's server is
//     partitioned but still answers. This assumes that clocks run at about the same rate,
//     that the servers grant a session timeout of at least two of their ticks, and that the
//     process is not stopped. It does not hold if a client removes the leader's znode: an
//     operator that deletes it, or a client that deletes the election and creates it again
//     while the old leader is unreachable.
//   - If the program closes the connection of a leader, the leadership ends first, with
//     [ErrConnClosed], if zkdial.Connect has opened the connection. With zk.Connect, the
//     library detects Close only afterwards: the next candidate can lead some milliseconds
//     before Done is closed, so let the candidate resign first.
//   - [Leadership.Multi] applies a ZooKeeper transaction only during the leadership. This
//     guarantee needs no assumption.
//   - Every call except ElectLeader returns within a bounded time. When a candidacy is
//     over, its Status channel is closed.
//
// # Succession
//
// Candidates lead in the order in which they have joined. [Status].Next reports to a candidate that it is
// the next one, so that it can prepare for its leadership. resign.Queue.Prefer of package resign lets the
// candidate with the highest priority lead.
//
// # Loss of the connection
//
// A lease ends half a session timeout, or less, after the leader sent the last write that ZooKeeper acknowledged.
// At the beginning of a leadership, it ends a third of the session timeout after that write. When the lease
// expires, the leader becomes [Suspended]. If its session still exists after a reconnect, it becomes leader again,
// with the same token. If the session has expired, the candidacy ends with [ErrSessionExpired], or restarts with
// [WithRejoin].
//
// Connections of package zkdial recover if the servers have lost their data. Package elector
// runs the work of a leader, and package resign requests candidates of other programs to
// resign. docs/design.md describes the algorithm and why it is correct, and lists where each part of it is.
package leaderelection
