// Package electiontest shows whether an implementation of
// [leaderelection.Candidate] keeps what the interface promises.
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
// Each case has a group of its own, an election in which several programs take part.
// Whatever a case plays, these are checked at every status that a candidate delivers, and
// while the suite waits for anything:
//
//   - no two leaderships last at one time: Leadership.Done is closed before another
//     candidate is told that it leads;
//   - a later leadership has a greater token;
//   - a status has a Leadership if and only if its Role is Leader, an Err only if it is the
//     last, and between two leaderships the end of the first is delivered;
//   - a status that is not the leader's, and the close of the channel, come after the end
//     of the leadership before.
//
// The suite sees what is promised between the calls it makes and the messages it reads. It
// does not see what happens when a process is stopped, or a clock is wrong.
package electiontest
