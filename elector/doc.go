// Package elector runs code while this program is the leader of an election, on any backend
// that implements [leaderelection.Candidate].
//
// [Lead] is for the simple case, one function that runs on one candidate at a time:
//
//	err := elector.Lead(ctx, candidate, func(ctx context.Context, l *leaderelection.Leadership) error {
//		return serve(ctx, l.Token())
//	})
//
// [Elector] calls separate handlers when leadership begins and ends, joins the election
// again after errors, and steps down if a handler fails.
//
// # Guarantees
//
//   - Begin and Work are called only during a leadership, and their context is done as soon
//     as the leadership ends.
//   - If the leader steps down, because the context of Run is done or because a handler has
//     failed, it does so gracefully: the contexts of Begin and Work are cancelled, Work
//     returns, End succeeds, and only then is the leadership released. It is also released
//     if these handlers do not return in time, or if End fails permanently.
//   - If leadership is lost, the handlers are stopped in the same order. Another candidate
//     may be the leader by then.
//   - End is called after every Begin that has succeeded or was interrupted. Handlers of
//     one Elector do not run concurrently unless one of them does not return in time.
//   - An error of a handler never blocks the Elector, and never leaves a candidate as
//     leader without its handlers running.
//   - Run and Lead return after a bounded time, regardless of what handlers and backends
//     do. See [Elector].
//
// # Limits
//
// A process that is stopped between a check of its context and the following action can act
// too late, as can a handler that ignores its context. Operations that must not overlap
// should be protected by the fencing token, [leaderelection.Leadership.Token].
//
// docs/elector.md contains the table of states.
package elector
