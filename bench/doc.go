// Bench compares implementations of elections, locks, counters, queues and caches on ZooKeeper: this
// library, go-zookeeper's zk.Lock, kazoo and Apache Curator. For elections it uses kazoo's Lock and
// Curator's LeaderLatch, for locks kazoo's Lock and Curator's InterProcessMutex.
//
//	go run .                                            # all rows, in about an hour
//	go run . -list                                      # the names of the rows, and the goals
//	go run . -only 'locks per second, 8' -rounds 160    # one row, with more rounds
//	go run . -short -compare recorded.txt               # marks what became worse, in five minutes
//	go run . -curve candidates                          # how costs grow, see curves.go
//
// All contestants use the same server in the same run. In each round every contestant has one turn,
// in random order. After each turn there is a pause, in which new candidates join and in which this
// library determines which candidate is next. The table contains medians over the rounds, with the
// quartiles in parentheses, and the goals of this library. The flag -json writes all values. On two
// cores, differences of less than 15 % are noise; use more rounds.
//
// Other programs increase the times of some rounds. The column "others" contains the number of cores that
// they used on average, which is the processor time of the machine without that of the benchmark, its
// servers and its contestants. If they use more than a quarter of a core, the program does not start, and
// it withholds the times and rates of rows that they have disturbed later. With -busy it does neither. Then
// -quantile 0.1 compares the fastest tenth of the rounds. Counts and memory do not depend on other programs.
//
// The flag -record writes the results of this library to a file in the format of Go benchmarks, and
// -compare compares them with such a file. With -short, all rows are measured in two halves, one after the
// other. The difference between the halves is the noise, and a row is worse if its change is larger.
//
// On one machine a message takes a few microseconds, so that the figures depend on the processor time
// of clients and server. Between machines, round trips take longer: -delay 500us simulates that. A
// proxy delays the messages to and from all contestants, except in the rows that do not measure time:
// counts and memory. The processor time of clients is not measured then.
//
// # The baseline
//
// The baseline is the shortest loop in which sessions take turns, without any guarantee, with
// go-zookeeper and with as many candidates and connections as the other contestants. To join, it
// creates a znode, lists the queue, and reads the znode of its predecessor with a watch. It leads, or
// holds the lock, if it is the first, or when the watch reports the deletion. To leave, it deletes its
// znode. It has no tokens, and relies on conditions that the other contestants have to verify: znodes
// are deleted only at the head of the queue, every reply arrives, and sessions do not expire. Rows
// in ms and in 1/s show the other contestants as multiples of the baseline's median.
//
// With -bounds, two more loops show how much of a difference is due to the requests of safe locks and
// elections, and not to the code of this library. The verified baseline lists the queue after its predecessor
// has left, because that predecessor may have given up while an earlier session still leads. The second one also
// creates its znode in a transaction, whose reply contains the fencing token. Both know the name of their
// predecessor without a listing, and read the election node when they are constructed.
//
// # Rows
//
// First join: the time until a candidate leads an election without other candidates. Second join: the time until
// a candidate that joins behind a leader has joined: it knows its position and watches its predecessor.
//
// Join of many candidates at the same time: the time until all of them have joined. Curator
// and zk.Lock do not report that, nor do contenders for a mutex; there the server's number of watches is used.
//
// Leading many elections on one connection: the time until one session leads all of them. Each has one
// candidate, and at most 100 candidates join at the same time.
//
// Hand-over: the time from just before the leader resigns, or the holder releases a mutex, until the
// successor has learned that it leads or holds the lock. In a take-over the session is closed
// instead. Up to 20 sessions share the candidates.
//
// Immediate resignations: every leader resigns as soon as it leads, in the goroutine or thread that
// learns of the leadership. The value is the time for one succession. "Others join" means that a new
// candidate joins for each leader that resigns; its requests compete with the successions. "No joins"
// and "draining" mean that no candidate joins before the measurement is over.
//
// Requests and watches fired per succession are counted by a proxy between the contestants and the
// server, while 100 candidates drain. Pings do not count. A list below the table contains the numbers
// by kind.
//
// Transactions per minute of idle candidates are counted by the same proxy. Each candidate has its
// own connection with a session timeout of 4 s.
//
// Locks per second: sessions acquire and release one lock repeatedly, without holding it. The run
// fails if two sessions have the lock at the same time. The processor time per lock is that of the
// client's process, which contains all sessions, and that of the server. It varies less than the rates
// if the machine is busy. In other rows the sessions hold the lock for 1 ms or 10 ms; or 100 sessions
// acquire the same 100 locks one after another, each beginning with another lock.
//
// Ensemble of 3 servers: the servers are three processes on this machine. Session i is at server i modulo 3.
//
// Counters and queues: each session adds 1 repeatedly; or it puts an item, takes one, which may be
// another session's, and acknowledges it.
//
// Caches: kazoo's TreeCache and Curator's CuratorCache. Curator uses persistent watches, which the
// client library of this library lacks. The baseline lists and reads all znodes, 64 at a time.
//
// Memory and goroutines are measured in a separate process for each contestant in Go, while 2000
// candidates or contenders wait: candidates of this library of which nobody receives a status, candidates
// with different names, each with a goroutine that receives its status, and contenders for a mutex. The
// other contestants do the same in all three. There the baseline joins without listings, whose garbage remains resident.
//
// # Contestants in other languages
//
// Kazoo and Curator run in separate processes, the programs in peers. They receive commands on their
// standard input and exit when it is closed. They measure times themselves, with CLOCK_MONOTONIC,
// which is the same for all processes on Linux. The report lists contestants that are not installed.
package main
