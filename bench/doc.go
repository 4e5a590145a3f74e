// Bench compares ways of electing a leader on ZooKeeper, and recipes: this
// library, go-zookeeper's zk.Lock, kazoo and Apache Curator. Candidates are
// kazoo's Lock and Curator's LeaderLatch; locks are kazoo's Lock and Curator's
// InterProcessMutex. All of them stand in the same run on the same server, one
// after another within each round, in an order that is shuffled anew for every
// round.
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
// For a lock it is what locks.go has: three requests where nobody is ahead, and
// otherwise four and an event.
//
// # What a figure is
//
// Locks are taken and given back by one session a contender, over and over for a
// second at a time, and counted; the rate of all together is shown as a share of
// the floor's. From the same seconds come the times from just before a holder
// gives back to when the next one has the lock. A run in which two have a lock at
// once is an error.
//
// Counters and queues are rates as well. Each session adds over and over; or puts
// an item, takes one, whosever it is, and acknowledges it.
//
// Caches are filled with 10,000 children of one znode, each time in a new session; the
// floor reads them 64 at a time, with watches. From a write to its event is the time
// from just before one session writes until a cache of another has told of it, with the
// data; the floor reads again when its watch has fired. Caches are kazoo's TreeCache and
// Curator's CuratorCache, which has persistent watches, that this client library lacks.
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
