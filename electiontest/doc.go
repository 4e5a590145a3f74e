// Package electiontest tests whether an implementation of [leaderelection.Candidate]
// keeps the contract of the interface.
//
//	func TestConformance(t *testing.T) {
//		electiontest.Run(t, func(t electiontest.TB) *electiontest.Group {
//			srv := startBackend(t)
//			return &electiontest.Group{
//				New: func(i int) (leaderelection.Candidate, error) { return srv.Candidate(i) },
//				Crash: func(i int) { srv.CutOff(i) },
//			}
//		})
//	}
//
// Each case uses a separate group: an election in which several programs participate. In
// every case the suite checks the following invariants, at each status that a candidate
// delivers and while it waits:
//
//   - No two leaderships overlap: Leadership.Done is closed before another candidate
//     becomes leader. After the deadline the suite waits up to ten seconds for it,
//     because the machine may be busy.
//   - A later leadership has a greater token.
//   - A status has a Leadership if and only if its Role is Leader. It has an Err only if
//     it is the last status. Between two leaderships of a candidate, a status that is not
//     a leader's is delivered.
//   - Only a follower is next, and only the status of a leader has a FormerErr, which is
//     ErrResigned or ErrLeaseExpired.
//   - A status that is not a leader's is delivered, and the channel is closed, only after
//     the candidate's leadership has ended.
//   - The events of a candidate's role have the order that [event.Kind] describes,
//     report each leadership, and end with event.Ended and the close of the channel.
//
// The suite observes calls, events and the statuses that it receives. It cannot detect errors
// that occur if a process is stopped or a clock is wrong.
package electiontest
