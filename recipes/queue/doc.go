// Package queue implements work queues on ZooKeeper: items are processed in the order in
// which they were put, by priority, or after a delay.
//
// # Guarantees
//
// An item that Put has confirmed is in the queue exactly once, and remains until it is
// acknowledged or discarded, regardless of networks and processes. It is delivered at least
// once: to one consumer at a time, and again if that consumer returns the item, dies or is
// partitioned. At most one acknowledgement of an item succeeds.
//
// A consumer claims an item by an ephemeral znode. An [Item] reports the loss of its claim
// before another consumer can claim the item ([Item.Done]), has a fencing token
// ([Item.Token]) and can guard a transaction ([Item.Multi]). Operations that are passed to
// [Item.Ack] are executed exactly once for each item, in the transaction of the
// acknowledgement. With [Queue.PutRequest] they can move an item to another queue.
//
// The timely report of a lost claim assumes that clocks run at about the same rate and that the process is not
// suspended. If the program closes a connection of zk.Connect while it has items, the report is some
// milliseconds late; on connections of package zkdial it is in time. Effects outside ZooKeeper that must not be
// repeated should be protected by the token.
//
// If the reply to a request is lost, the outcome is determined before the request is
// retried. If that is impossible, because the session has ended, the error is
// [recipes.ErrUnconfirmed].
//
// A single consumer receives items in order. Several consumers begin items approximately in order, because each
// takes one of the first few unclaimed items, and complete them in any order. An item that is returned keeps its
// position, but a consumer that has returned it repeatedly does not claim it again for some time ([Item.Return]),
// and no consumer claims it before a delay with which it was returned is over ([Later]), as [Queue.Handle]
// does. A consumer notices a new item that belongs before items it has already listed when it has taken 16 items,
// or an eighth of a longer list, after a second, or when other consumers have taken several of its items.
//
// Attempts are counted before delivery, so an item that crashes its consumer is counted as
// well. After 25 attempts ([WithMaxAttempts]) such an item becomes a [DeadLetter], which can be listed,
// requeued and discarded.
//
// # Limits
//
// ZooKeeper keeps all data in the memory and on the disk of every server, and lists the
// children of a znode only as a whole. These queues are for coordination: few, small jobs
// whose assignment must be agreed on, such as migrations, rebalancing, or the use of
// expensive resources. They do not replace a message broker.
//
//   - Items: a queue should have at most about ten thousand at a time, including delayed and claimed items.
//     Consumers list the queue as a whole, with 20 bytes for each item: 200 KB. [WithMaxItems] limits the length
//     of a queue. The names of 50,000 items fill the megabyte that Java clients receive;
//     [recipes.ErrTooLarge] is returned if a Go client has a smaller limit. A consumer that starts at a queue of
//     50,000 items receives the first one after 0.1 s. To take and acknowledge an item costs three requests at any
//     length.
//   - Consumers: a queue can have dozens. Each put and each acknowledgement wakes every idle consumer, which
//     lists the queue. So an item that arrives while all are idle costs about four requests for each of them:
//     23 with 4 consumers, 315 with 64, 1,090 with 256. While items wait, an item costs 4 requests with 4 or 16
//     consumers, 7 with 64, and 16 with 256.
//   - Items should have at most some kilobytes. The limit is slightly less than a megabyte
//     ([recipes.ErrTooLarge]). Store large data elsewhere, and its name in the item.
//   - All queues of an ensemble together can process as many items as it can write: each
//     item takes three transactions, or fewer if many are put or taken together. One server on two cores, which
//     other programs occupied, processed 490 items per second with 16 consumers.
//   - A queue that is never empty can have 2147483647 items over its life, which is 24 days
//     at a thousand items per second. After that Put returns [recipes.ErrNodeExhausted] until the queue
//     has been empty.
//
// The figures are those of docs/benchmarks.md. More work is divided among several queues, by a hash of what must
// remain in order; see docs/recipes/queue.md. For a stream of messages use a broker such as Kafka, NATS JetStream or
// RabbitMQ, and for millions of waiting jobs a table in a database, as River does.
//
// # Interoperability with Curator and kazoo
//
// Names and data are those of Curator: Put corresponds to its DistributedQueue, Put with
// [WithPriority] to its DistributedPriorityQueue, and Put with [WithTime] to its
// DistributedDelayQueue. Curator consumers can share a queue with consumers of this package
// if they use a lock path, which [WithClaims] sets here; consumers without a lock path take
// items that others have claimed. With [recipes.WithKazooLayout], names and data are those of kazoo's
// LockingQueue. Consumers of kazoo's Queue ignore claims and must not share a queue with
// this package. All producers of a queue should use the same kind of Put.
//
// Curator and kazoo do not verify their claim when they delete an item. Such a consumer can
// delete an item after its session has expired, while another consumer has claimed it; the
// [Item.Ack] of that consumer fails with [recipes.ErrDeleted]. They do not count attempts
// either: an item that Curator puts back after a failure is a new item at the end of the
// queue.
//
// # Znodes
//
//	<path>                                   items; persistent
//	<path>/queue-0000000042                  an item
//	<path>-claims                            persistent
//	<path>-claims/queue-0000000042           the claim of the item: ephemeral
//	<path>-claims/client-<uuid>              a Queue that has written: ephemeral
//	<path>-claims/later-<due>-queue-0000000042  the delay of an item: persistent
//	<path>-dead/queue-0000000042-<czxid>     a dead letter, usually with the data of the item
//	<path>-dead/queue-0000000042-<czxid>/why its reason
//
// Participants need the permissions to create, read, write and delete in these directories,
// and to create and delete children of items, which count the attempts.
package queue
