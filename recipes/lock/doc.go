// Package lock holds locks on ZooKeeper: [Mutex], [RWMutex], [Semaphore] and
// [Multi].
//
// # What is guaranteed
//
// In what ZooKeeper has committed, at most one grant of a mutex stands at a time, and
// of an RWMutex either one writer's or any number of readers', whatever networks,
// clocks and processes do. Of two grants that exclude each other the later has the
// greater fencing token ([Hold.Token]). What must never be done by a former holder is
// done with [Hold.Multi], which commits only while the grant stands, or by a
// system that refuses tokens smaller than the greatest it has seen.
//
// A holder is told of the end of its grant before another can have the lock:
// [Hold.Done] is closed when the grant is lost, and also when ZooKeeper has not
// answered for so long that it may be. That is a matter of time: it supposes that
// clocks run at about the same rate and that this process runs at all. A process
// that was stopped between a look at Done and the act that follows acts too late;
// then only the token helps, and to a lesser degree a lock-delay ([WithLockDelay]).
//
// Grants are given in the order in which contenders have come; readers that stand
// next to each other have the lock together.
//
// # What is not
//
// A lock is not re-entrant: a [Hold] is a value that any goroutine may use and
// release, and whoever asks a second time waits for the first. Only where the hold's
// own context is passed on can that be seen, and is refused ([ErrReentrant]). A
// znode that an operator deletes is gone at once for everybody, and its holder hears
// of it when its successor does.
//
// A path belongs to one recipe: a Mutex and an RWMutex at the same path are not kept
// apart.
//
// # Znodes
//
//	<path>                                    container, removed by ZooKeeper when it is empty
//	<path>/_c_<uuid>-lock-0000000042          a contender for a Mutex: ephemeral, sequential
//	<path>/_c_<uuid>-__WRIT__0000000042       for an RWMutex, to write
//	<path>/_c_<uuid>-__READ__0000000042       for an RWMutex, to read
//	<path>/held-w-<uuid>, <path>/held-r-<uuid>  with a lock-delay: persistent, of a holder
//
// Names are those of Curator's InterProcessMutex and InterProcessReadWriteLock, or,
// with [recipes.Kazoo], those of kazoo's Lock, WriteLock and ReadLock, and programs in
// Java or Python can contend for the same lock.
//
// Any other ephemeral child of a Mutex or an RWMutex whose name ends in ten digits is a
// contender, too, of a lock that was written by hand: all others wait for it, as for a
// writer. Persistent children with such names are ignored, with a warning. A [Semaphore]
// knows only the names of the libraries.
package lock
