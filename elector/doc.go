// Package elector runs something while this program leads an election, on any
// backend that has a [leaderelection.Candidate].
//
// [Lead] is for the plain case, one function that is to run on one candidate at
// a time:
//
//	err := elector.Lead(ctx, candidate, func(ctx context.Context, l *leaderelection.Leadership) error {
//		return serve(ctx, l.Token())
//	})
//
// [Elector] has handlers for the beginning and the end of leadership, takes part
// again after errors, and gives leadership up when a handler fails.
//
// # What is guaranteed
//
//   - Begin and Work are called only with a leadership that lasts at that moment,
//     and their context is done as soon as the leadership is.
//   - Leadership that is given up, because the context of Run has ended or a handler
//     has failed, is given up in order: the contexts of Begin and Work are ended, Work
//     returns, End succeeds, and only then does the backend hear of it; or when they
//     hang, or End has failed for good.
//   - Leadership that is lost ends in the same order, as fast as the handlers are:
//     another one may lead by then.
//   - End is called for every Begin that has succeeded, and for every one that was
//     interrupted. Handlers of one Elector never overlap, as long as none hangs.
//   - A handler's error never blocks the loop, and never leaves the leadership with a
//     candidate that does nothing with it.
//   - Run and Lead come to an end whatever handlers and backends do; see [Elector].
//
// # What is not
//
// A process that is stopped between a look at its context and the act that follows can
// act too late, and so can a handler that does not heed its context. What must never
// happen twice is to be guarded by the fencing token, [leaderelection.Leadership.Token].
//
// docs/elector.md has the table of states, and who owns which goroutine.
package elector
