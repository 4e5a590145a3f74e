// Package barrier holds barriers on ZooKeeper: [Barrier], which holds everybody while
// it stands, and [Double], where n participants begin and end a round together.
//
// # What is guaranteed
//
// Wait returns only when there was no barrier at some moment after the call. A round
// of a Double has exactly n participants. One transaction records them and checks that
// each of them still waits at the barrier: a client that is not recorded does not enter,
// however late, slow or partitioned it is.
// Leave returns only when every participant of the round has left, or is gone with its
// session. Rounds are numbered, and one Double serves any number of them.
//
// # What is not
//
// A barrier that is removed and set again at once may be missed by nobody, but not
// everybody is let through at the same moment: whoever is slow hears later. A
// participant that dies in a round is not waited for; the others learn of it only by
// what they do together. [Round.Done] tells a participant that its own place is lost.
//
// # Znodes
//
//	<path>                   Barrier: exists while it is set, as Curator's DistributedBarrier and kazoo's Barrier
//
//	<path>                   Double: the number of the round
//	<path>/<round>-<uuid>    a participant, ephemeral
//	<path>/ready-<round>     the round has begun; its participants
package barrier
