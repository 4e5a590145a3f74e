// Package recipes contains the options, errors and formats of values that all ZooKeeper recipes share.
// The recipes are in the packages below it:
//
//	lock       Mutex, RWMutex, Semaphore and MultiLock, with fencing tokens
//	barrier    Barrier, and Double with numbered rounds
//	queue      work queues: FIFO, by priority, delayed; at-least-once delivery
//	value      Value, by compare-and-set; Counter and IDs: numbers to which clients add, blocks of IDs
//	group      Group and Persistent: membership
//	shard      shards of work divided among members, each owned by one
//	discovery  services and their instances, in Curator's layout
//	cache      in-memory copies of a znode, its children or a subtree, with events
//
// All recipes use a *zk.Conn that the caller opens and owns, and that any number of recipes
// may share. Every call that blocks takes a context, and returns its cause when the context
// is done. A recipe cleans up even then: znodes that a cancelled call has created are
// removed in the background, until ZooKeeper confirms the removal, the session ends or the
// connection is closed. Methods may be called from any goroutine unless they are documented
// otherwise.
//
// If the reply to a request is lost, the request may have been applied or not. Recipes
// detect from ZooKeeper's state whether it was applied, and retry only requests that were
// not. If that cannot be determined, they return [ErrUnconfirmed].
//
// Elections are in the root package.
package recipes
