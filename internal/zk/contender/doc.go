// Package contender implements one contender in a wait queue on ZooKeeper as a deterministic state machine.
// Elections, mutexes, read-write locks and semaphores use it.
//
// A contender creates an ephemeral sequential znode in the znode of the queue. The sequence numbers order the
// contenders, so the earlier contenders of a contender can only become fewer. A contender watches its
// predecessor, the last of the earlier contenders that it waits for. When the predecessor's znode is deleted and no
// other of these contenders remains, it is the contender's turn.
//
//	joining ──► queued ──► holding ──► leaving ──► gone
//	                 └──────► lost ──────┘
//
// A contender is joining until it has a znode, queued until it is its turn, and holding afterwards. It is lost
// if its znode was deleted, until it knows the reason, and leaving while it removes its znodes. An error, or
// the caller's request to leave, leads from every state to leaving.
//
// The state machine contains no goroutines, channels, clocks, connections or random numbers. [Contender.Step]
// consumes one input (a reply, a watch event, a timer, a change of the connection) and returns outputs:
// requests, reports to the user, timers. Package queue executes them. The explorer in the tests of this package
// executes them in a model of ZooKeeper and visits all reachable states.
//
// # Knowledge and requests
//
// An input only changes what the contender knows. After each input, Step compares this knowledge with what the
// state requires, and outputs the missing requests. Therefore the order in which replies and events arrive does
// not matter, and a request is never repeated while its reply is outstanding.
//
// docs/design.md says how a contender prepares for its turn, which then needs no further request ("The hand-over
// needs no request"). A contender that waits for [Config.Lookahead] others or more does so only after it has waited
// for some time: while turns are short, the preparation would come too late.
package contender
