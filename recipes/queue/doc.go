// Package queue holds queues of work on ZooKeeper: items in the order in which
// they were put, by priority, or delayed until a time.
//
// # What is guaranteed
//
// An item that Put has confirmed is there once, and stays until it is acknowledged
// or discarded, whatever networks and processes do. It is handed out at least
// once: to one consumer at a time, and again when that one returns it, dies or is
// out of reach. An acknowledgement that is confirmed is the only one.
//
// An item is claimed by an ephemeral znode, and an [Item] is a grant: it tells when
// it is lost ([Item.Done], before another consumer can have the item), carries a
// fencing token ([Item.Token]) and can guard a transaction ([Item.Multi]). What is
// written to ZooKeeper along with the acknowledgement, [Item.Ack] with operations,
// is written exactly once for each item; [Queue.PutRequest] moves an item from one
// queue to the next that way. That an item is told of its end in time supposes that
// clocks run at about the same rate and that this process runs at all; what
// must never be done twice elsewhere is done under the token.
//
// No answer that is lost is guessed at. Where it cannot be found out whether
// something was carried out, because the session ended meanwhile, the error is
// [recipes.ErrUnconfirmed].
//
// A single consumer that nobody disturbs is handed items in order. Several begin
// approximately in order, each taking from the first few that nobody has, and
// complete in any. An item that comes back keeps its place. One that belongs before
// those that a consumer has listed already is seen by it when 16 of them are taken, or
// an eighth of a longer list.
//
// Attempts are counted before an item is handed out, so that one that kills its
// consumer is counted too. With Config.MaxAttempts the item then becomes a
// [DeadLetter], which can be listed, requeued and discarded.
//
// # What ZooKeeper is wrong for
//
// ZooKeeper keeps everything in the memory of every server and writes everything
// to the disk of every server, and lists a directory only as a whole. A queue here
// is for coordination: jobs that are few, small and worth agreeing on, such as
// migrations, rebalancing, leases of expensive resources. It is no message broker.
//
//   - Up to about ten thousand items at a time in one queue, delayed ones and those
//     that are claimed included. Whatever is longer is split into several queues.
//     The names of 50 000 items fill the megabyte that Java clients receive;
//     [ErrTooMany] tells where a client's own limit is smaller. Config.MaxItems
//     bounds a queue.
//   - Items of some kilobytes. Their limit is a little less than a megabyte
//     ([ErrTooLarge]); the place for large data is elsewhere, and its name in the item.
//   - Some thousand items a second in all queues of an ensemble: each costs three
//     transactions, fewer when many are put or taken at once.
//   - Consumers by the dozen. A put, and an acknowledgement, wakes every idle one.
//   - 2147483647 items over the life of a queue that is never empty; at a thousand
//     a second that is 24 days. Then [ErrExhausted], until it is empty once.
//
// # Sharing a queue with Curator and kazoo
//
// Names and data are Curator's: Put is that of its DistributedQueue, Put with
// [Priority] that of its DistributedPriorityQueue, Put with [At] that of its
// DistributedDelayQueue. Its consumers can share a queue with this package's if they
// have a lock path, which is Config.Claims; without one they take items that
// others have claimed. With [recipes.Kazoo] they are those of kazoo's
// LockingQueue; kazoo's Queue does not look for claims and must not be mixed in.
// In one queue use the kind of Put that the others understand.
//
// Neither of the two makes sure that its claim still stands when it deletes an item.
// One whose session has ended while it worked can delete an item that somebody
// else has by then, whose [Item.Ack] fails with [recipes.ErrDeleted]. And neither
// counts: an item that Curator puts back after a failure is a new one at the
// end of the queue.
//
// # Znodes
//
//	<path>                                   items; persistent
//	<path>/queue-0000000042                  an item
//	<path>-claims                            persistent
//	<path>-claims/queue-0000000042           its claim: ephemeral
//	<path>-claims/client-<uuid>              of a Queue that has written something: ephemeral
//	<path>-dead/queue-0000000042-<czxid>     a dead letter, the data of the item
//	<path>-dead/queue-0000000042-<czxid>/why its reason
//
// Participants need to create, read, write and delete in these directories, and to
// create and delete children of items, by which attempts are counted.
package queue
