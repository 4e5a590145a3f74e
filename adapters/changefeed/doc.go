// Package changefeed implements elections on any store that can compare and set one record
// and deliver its changes. The leader writes a heartbeat to the record, and the other
// candidates follow the record by the store's feed.
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
// # Guarantees
//
//   - At most one candidate is the leader at any time, if clocks run at about the same rate
//     ([WithClockDrift]), and if the store's compare-and-set is linearizable and the store
//     does not lose acknowledged writes. Clocks do not have to agree on the time, and
//     requests and feeds can be delayed arbitrarily.
//   - Leadership.Token is the term, which increases with each leadership. A system that rejects
//     tokens smaller than the greatest it has seen is protected from a leader whose process was
//     suspended and that acts too late.
//   - Leadership.Done is closed before another candidate can become leader, because the
//     lease is measured from the time before the heartbeat was sent.
//   - No call blocks indefinitely: Resign and EndElection return within two seconds.
//
// A leader whose lease has expired becomes a follower, and is never suspended: its next
// leadership has another token.
//
// # Succession
//
// Candidates are not ordered: if the leader leaves, the candidate that claims the record first becomes leader.
// [Transfer] selects the next leader, and [NewQueue] lets a candidate of higher priority take over.
// Status.FormerErr of a new leader says whether the former leader has released the record.
//
// # Limits
//
// The first guarantee does not hold if the store fails over to a replica that lacks acknowledged
// writes. docs/changefeed.md describes the algorithm, why it is correct, how its correctness is
// verified, and its limits.
package changefeed
