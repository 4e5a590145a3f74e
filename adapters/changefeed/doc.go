// Package changefeed holds elections in any store that can compare and set one record
// and tell of its changes: the leader's heartbeat is a write to the record, and the
// others follow by the store's feed.
//
//	election, err := changefeed.NewElection(store, changefeed.WithID("worker 7"))
//	...
//	go election.ElectLeader()
//	for status := range election.Status() {
//		if status.Role == leaderelection.Leader {
//			go lead(status.Leadership)
//		}
//	}
//
// # What is guaranteed
//
//   - At most one candidate leads at any time, if clocks run at about the same rate
//     ([WithClockDrift]), and the store's compare-and-set is linearizable and loses nothing
//     that it has acknowledged. Clocks need not agree, and requests and feeds may be as
//     late as they like.
//   - Leadership.Token is the term, which grows from leadership to leadership. Systems that
//     refuse smaller tokens than they have seen are safe from a leader that was stopped and
//     acts too late.
//   - Leadership.Done is closed before another candidate can lead, by a lease that counts
//     from before the heartbeat was sent.
//   - Nothing waits for ever: Resign and EndElection take two seconds at most.
//
// A leader that could not prove its leadership any longer is a follower, and never
// suspended: what it wins next is a leadership with another token.
//
// A store that fails over to a copy which lacks acknowledged writes breaks the first of
// these. docs/changefeed.md describes the algorithm, why it is right, how that is
// checked, and its limits.
package changefeed
