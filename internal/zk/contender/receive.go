package contender

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// receive processes the reply to a request.
func (c *Contender) receive(r *Request, reply *Reply) {
	if reply.Doubt && c.phase == queued {
		delay := doubtDelay
		if r.Reset {
			delay = longDoubtDelay
		}
		c.setTimer(DoubtTimer, delay)
	}
	switch r.Kind {
	case Create:
		c.receiveCreate(reply)
	case MakeQueue:
		if reply.Err != nil && c.phase == joining {
			c.leave(reply.Err, false)
		}
	case Search:
		c.receiveSearch(r, reply)
	case Inspect:
		c.receiveStat(r.Name, reply)
	case FindContender:
		c.receiveFound(r, reply)
	case List:
		c.receiveList(r, reply)
	case ReadOwn:
		c.receiveOwn(r, reply)
	case ReadPredecessor, ReadBefore:
		c.receiveOther(r, reply)
	case FindReason:
		c.receiveReason(reply)
	case Delete:
		c.receiveDelete(r, reply)
	case Notify:
		if err := reply.Err; c.phase == holding && err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, connection.ErrConnClosed) {
			// The follower would wait although leases are free. After all other failures the znode
			// does not exist any more, and its deletion wakes the follower as well.
			c.leave(err, false)
		}
	case Replace:
		c.receiveReplace(r, reply)
	}
}

// receiveEvent processes the event of a watch.
func (c *Contender) receiveEvent(in *Input) {
	switch in.Event {
	case ConnClosed:
		c.leave(connection.ErrConnClosed, false)
		return
	case SessionOver:
		c.leave(connection.ErrSessionExpired, false)
		return
	}
	switch in.Watch {
	case OwnWatch:
		c.watches.own = notWatched
		switch {
		case in.Name != c.znode.name, c.znode.renamingTo != "":
			// The rename deletes the znode itself.
		case in.Event == Deleted:
			c.lose()
		case c.phase == queued:
			c.listAgain()
		}
	case OtherWatch:
		if c.queue.predecessor.name == in.Name {
			c.queue.predecessor.fire(in)
			if in.Event != Deleted && c.cfg.Admit != nil {
				// The predecessor has its turn, and this contender may have it, too. Without
				// Policy.Admit, the queue was marked as ended, which the next contender
				// notices when it reads the predecessor again.
				c.queue.list = watchedList
				c.prove(true)
			}
		}
		if c.queue.before.name == in.Name {
			c.queue.before.fire(in)
			if in.Event == Deleted {
				c.listAgain()
			}
		}
	case QueueWatch:
		c.watches.queue = false
		if c.queue.place.waitsForAny() {
			c.queue.list = watchedList
		}
	}
}
