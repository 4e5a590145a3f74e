// Package lock implements distributed locks on ZooKeeper: [Mutex], [RWMutex], [Semaphore]
// and [MultiLock]; [Period], a lock that begins at most one hold in a period; and [Single], a lock
// that is one znode, for programs that share it with hand-written ones.
//
// # Guarantees
//
// According to ZooKeeper's history, a mutex has at most one holder at a time, and an
// RWMutex has either one writer or any number of readers, regardless of networks, clocks
// and processes. Of two holds that exclude each other, the later one has the greater fencing token
// ([Hold.Token]). Operations that a former holder must not perform should be executed by
// [Hold.Multi], which commits only while the lock is held, or by a system that rejects tokens
// smaller than the greatest it has seen.
//
// A holder learns that it has lost the lock before another client can acquire it: [Hold.Done] is closed when
// the lock is lost, and also when ZooKeeper has not answered for so long that it may have been lost. This
// assumes that clocks run at about the same rate and that the process is not suspended. If the program closes
// the connection, Done is closed in time on connections of package zkdial; on a connection of zk.Connect,
// release the lock first. A process that is suspended between a check of Done and the following action acts too
// late. In that case only the token protects the resource, and, with weaker guarantees, a lock-delay
// ([WithLockDelay]).
//
// Locks are granted in the order of arrival, except a Single. Consecutive readers hold the lock together.
//
// # Limits
//
// Locks are not re-entrant. Any goroutine may use and release a [Hold], so a second call of Lock waits until
// the first hold ends. Lock rejects such a call ([ErrReentrant]) only if the caller passes the context of the
// hold to Lock. If an operator deletes the znode of a holder, the lock is free immediately; the former holder
// may learn of the deletion only when its successor acquires the lock. During the first 2 ms of a hold, the
// holder may notice the deletion, or the forced end of its session, up to 2 ms and a round trip late. The
// fencing token and transactions of Hold.Multi are not affected, except the transactions of a [Single]: see
// [NewSingle].
//
// Acquisitions write the znode of the lock, without data, in the transaction that creates the contender's
// znode, which saves a round trip. This write triggers the data watches of the znode, so that a cache that
// contains the znode receives an event for each acquisition, and erases data that another program writes later.
// If the znode had data when the lock was first used on the connection, acquisitions do not write the znode,
// and take one more round trip.
//
// A path must be used by one recipe only: a Mutex and an RWMutex at the same path do not
// exclude each other correctly.
//
// # Znodes
//
//	<path>                                    container, removed by ZooKeeper when it is empty
//	<path>/_c_<uuid>-lock-0000000042          contender for a Mutex: ephemeral, sequential
//	<path>/_c_<uuid>-__WRIT__0000000042       writer of an RWMutex
//	<path>/_c_<uuid>-__READ__0000000042       reader of an RWMutex
//	<path>/held-w-<uuid>, <path>/held-r-<uuid>  marker of a holder with a lock-delay: persistent
//	<path>/_c_<uuid>-lease-0000000042         contender for a lease of a Semaphore, or -x3-lease- for three
//	<path>/period                             when the last hold of a Period began: persistent
//	<path>                                    the holder of a Single: ephemeral, with the user's data
//	<parent of path>/_r_<uuid>                record of the transactions of holds of Singles: ephemeral
//
// The names are those of Curator's InterProcessMutex and InterProcessReadWriteLock or, with
// [recipes.WithKazooLayout], those of kazoo's Lock, WriteLock and ReadLock, so that programs in Java
// or Python can contend for the same lock.
//
// Any other ephemeral child of a Mutex or an RWMutex whose name ends in ten digits is
// considered a contender of a hand-written lock, and is treated as a writer. Persistent
// children with such names are ignored, and a warning is logged. A [Semaphore] recognizes
// only the names of the libraries.
package lock
