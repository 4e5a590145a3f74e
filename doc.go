// Package leaderelection elects one leader among the copies of a program, on
// ZooKeeper, and tells each copy over a channel what it is.
//
// # What is guaranteed
//
//   - In ZooKeeper's history at most one living candidate of an election is the
//     first in line. Successive leaders have strictly increasing tokens
//     ([Leadership.Token]).
//   - A leader is told that its leadership is gone before another candidate can
//     have it: [Leadership.Done] is closed by a lease that ends before the
//     ensemble can expire the session, whatever the connection seems to be. This
//     supposes that clocks run at about the same rate, that the servers grant at
//     least two of their ticks as the session timeout, and that the process runs.
//     It does not hold against those who take the leader's znode away: an
//     operator who deletes it, a program that closes its connection before it
//     resigns, or one that creates a deleted election anew while the old leader
//     is out of reach.
//   - [Election.Multi] applies a ZooKeeper transaction only while the candidate
//     leads. This supposes nothing.
//   - Other systems are safe from a leader that was stopped and acts too late if
//     they refuse tokens smaller than the greatest they have seen.
//   - Nothing waits for ever: what depends on ZooKeeper has a limit, a context
//     or a channel that is closed, and every candidacy ends with its channel
//     closed.
//
// # An election
//
// The caller opens the connection, creates the election node and goes on to
// own both:
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
// What a leader does should end with status.Leadership.Done().
//
// # When the connection is lost
//
// A leader that cannot reach its ensemble remains leader until its lease ends: a third of
// the session timeout after the request that elected it was sent, and half of it after later
// checks that ZooKeeper has acknowledged. Then it is [Suspended]. If its session lives when the connection is back, it is
// leader again, with the same token; if not, the candidacy is over with
// [ErrSessionExpired], or begins anew ([WithRejoin]).
//
// Package zkdial opens connections that recover if the servers have lost their data;
// docs/servers.md lists the servers that work.
//
// docs/design.md describes the algorithm and why it is right.
package leaderelection
