// Bench compares ways of electing a leader on ZooKeeper: this library,
// go-zookeeper's zk.Lock, kazoo's Lock and Apache Curator's LeaderLatch. All of
// them stand in the same run on the same server, one after another within each
// round, in an order that is shuffled anew for every round.
//
//	go run . -rounds 100 -json figures.json
//
// # The floor
//
// Times are multiples of a floor measured in the same rounds: the fewest
// requests with which any client could do the same, sent with go-zookeeper.
// To join it takes one create and one listing. To hand over it takes one
// delete that another session sees by a watch, from just before the delete
// until the event has arrived; to take over, the close of a session that owns
// what is watched. The floor does not depend on how many stand in line.
//
// # What a figure is
//
// The median of a contestant's times divided by the median of the floor's
// times in the same rounds; in parentheses the quartiles, divided by the same.
// Gaps under 15 % are noise on two cores: more rounds help, finer claims do not.
//
// After each turn every contestant gets the same pause to settle, in which
// candidates join anew and in which this library finds out, off the critical
// path, who is next. Elections follow each other at longer intervals in
// practice.
//
// # Contestants in other languages
//
// kazoo and Curator run in processes of their own (peers/), driven over
// standard input and output, and end when their input does, so that they
// cannot outlive this program. They take the times themselves; processes on
// Linux share CLOCK_MONOTONIC, which is also this program's clock. Whoever is
// not installed is named as absent.
package main
