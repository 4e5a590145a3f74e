// Package recipes holds what the ZooKeeper recipes below this directory have in
// common: their options and their errors.
//
//	lock       Mutex, RWMutex, Semaphore, Multi; grants with a fencing token
//	barrier    Barrier; Double, with numbered rounds
//	queue      work items: FIFO, by priority, delayed; at least once
//	counter    Counter, Value; compare-and-set, blocks of ids
//	group      Group, Persistent, Partitioner: members, and parts divided among them
//	discovery  services and their instances, in Curator's layout
//	cache      a znode, its children or a subtree in memory, with events
//
// All of them work on a *zk.Conn that the caller has opened and goes on to own,
// and that any number of recipes may share. Everything that waits takes a
// context, and ends with its cause. The end of a context never keeps a recipe
// from cleaning up: what a cancelled call has created is removed in the
// background, until that is confirmed, the session is over or the connection is
// closed. Methods may be called from any goroutine unless they say otherwise.
//
// A request whose reply is lost may or may not have been carried out. Recipes
// find out, by what the request has left behind, and repeat only what did not
// happen. Where that cannot be found out the error is [ErrUnconfirmed].
//
// Elections are in the root package.
package recipes
