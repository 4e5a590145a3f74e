// Package barrier implements barriers on ZooKeeper: [Barrier], which blocks all waiting
// clients while it is set, and [Double], at which n participants begin and end a round
// together.
//
// # Guarantees
//
// Wait returns nil only if the barrier did not exist at some time after the call. A round of a Double has exactly n
// participants. One transaction records them and checks that each of them still waits at the barrier, so a client
// that is not recorded does not enter, even if it is slow or was partitioned. Leave returns nil only when every
// participant of the round has left or its session has ended. Rounds are numbered, and one Double can be used for
// any number of rounds.
//
// # Limits
//
// Waiting clients are not released at the same moment, because notifications can be
// delayed. If a barrier is removed and set again immediately, a slow client may find it set
// again and continue to wait. A participant that dies during a round is not waited for, and
// the other participants are not notified. [Round.Done] notifies a participant that its znode is
// lost.
//
// # Znodes
//
//	<path>                   Barrier: exists while it is set, as Curator's DistributedBarrier and kazoo's Barrier
//
//	<path>                   Double: the number of the round
//	<path>/<arrival>-<uuid>  a participant, ephemeral
//	<path>/ready-<round>     the round has begun; its participants
package barrier
