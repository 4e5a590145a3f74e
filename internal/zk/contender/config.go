package contender

import "time"

// Config is the configuration of a contender, which does not change.
type Config struct {
	Policy

	Dir    string // the path of the queue's znode
	Naming Naming
	// Tombstone is the name of a child that marks the queue as ended, or empty if the queue cannot end.
	Tombstone string
	// CanMakeQueue reports that the znode of the queue is created if it does not exist. Otherwise its absence
	// means that the queue has ended.
	CanMakeQueue bool
	// QueueMayVanish means that the znode of the queue can be a container, which the servers delete while it is
	// empty, and that the caller creates it again. A contender that finds no queue, or another queue, then
	// leaves with zk.ErrNoNode. If it may have created a znode in the queue before, a client has deleted the
	// queue, and the queue has ended.
	QueueMayVanish bool
	// QueueUnconfirmed means that QueueCzxid may be that of an earlier queue, because the server that has shown
	// it may have lagged behind. A contender that has joined another queue then leaves with zk.ErrNoNode, so
	// that the caller reads the znode again.
	QueueUnconfirmed bool
	// Lookahead makes the contender prepare for its turn at once if it waits for fewer earlier contenders than
	// this number: it watches its znode, and the contender before its predecessor. Otherwise it does so after
	// PreparePerContender for each of them. If it is positive, the contender also watches its znode as soon as its
	// turn has come.
	Lookahead int32
	// QueueCzxid identifies the znode of the queue, unless it is 0. Another znode at the same path is another
	// queue.
	QueueCzxid int64
	// QueueSession is the session in which the znode of the queue was seen, or 0 if that is not known. In another
	// session the absence of that znode does not show that a client has deleted it, because the servers may have
	// lost their data, unless the contender has listed the queue in that session.
	QueueSession int64
	// Patience limits how long ZooKeeper may be unreachable while the contender joins, or looks for the reason
	// why its znode was deleted; 0 means no limit.
	Patience time.Duration
	// Standby is how long the next contender keeps a lease in advance, so that the turn is proven as soon as the
	// predecessor departs. Afterwards the contender requests a lease only when its turn has come. 0 means no limit.
	Standby time.Duration
}

// Policy determines when it is a contender's turn. If all functions are nil, each contender waits for all
// earlier ones.
type Policy struct {
	// Blocks reports whether the contender waits for the earlier contender with this name.
	Blocks func(name string) bool
	// Replaceable reports whether an earlier contender can be replaced by a new one at the same position, so
	// that its deletion does not prove that the position is free.
	Replaceable func(name string) bool
	// Admit decides whether a contender has its turn together with others.
	Admit func(l Listing) Admission
}

// Listing is the input of [Policy.Admit].
type Listing struct {
	Own         string
	Predecessor string // the last of the earlier contenders, empty for the head of the queue
	Names       []string
	// Counts reports whether a child must be counted: it is not an orphaned znode of the contender itself.
	Counts func(name string) bool
}

// Place is a contender's place in the queue.
type Place uint8

const (
	// Behind means that the contender waits for a change of its predecessor.
	Behind Place = iota
	// BehindAny means that the departure of any earlier contender may give this contender its turn.
	BehindAny
	// BehindHolders is BehindAny for a contender whose earlier contenders all have their turn. Its turn is near, so
	// it should have a lease in advance.
	BehindHolders
	// First means that it is the contender's turn.
	First

	next      // the contender waits only for its predecessor, which cannot be replaced; not with Policy.Admit
	unlisted  // no listing has shown the place yet
	predicted // no listing has shown the place yet, and the contender waits for its predicted predecessor
)

func (p Place) waitsForAny() bool { return p == BehindAny || p == BehindHolders }

// Admission is the result of [Policy.Admit].
type Admission struct {
	Place Place
	// Followed reports that a later contender waits, and must be notified when this contender has its turn.
	Followed bool
	// Err is the error with which the contender ends, or nil.
	Err error
}

const (
	// PreparePerContender times the number of earlier contenders is how long a contender waits until it prepares
	// for its turn, unless Lookahead makes it prepare at once. If turns are shorter than PreparePerContender, a
	// preparation would come too late, and its requests would delay others.
	PreparePerContender = 5 * time.Millisecond
	// OwnDelay is how long a turn lasts before a contender without Lookahead watches its znode, unless it watched
	// the znode while it was queued. During OwnDelay, the contender notices a
	// deletion of its znode only by the checks of the lease.
	OwnDelay = 2 * time.Millisecond
	// reasonDelay is how long a contender whose znode was deleted looks for the reason before it reports the
	// deletion a second time.
	reasonDelay = 10 * time.Millisecond
	// reconnectDelay is added to Patience while a contender looks for the reason of a deletion, because the client
	// library waits for a second before it connects to a server again.
	reconnectDelay = 2 * time.Second
)
