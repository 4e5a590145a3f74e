package contender

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// receive processes the reply to a request.
func (c *Contender) receive(r *Request, reply *Reply) {
	if reply.Doubt && c.phase == queued {
		delay := doubtDelay
		if r.Reset {
			delay = longDoubtDelay
		}
		c.setTimer(&c.doubting, DoubtTimer, delay)
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
		if err := reply.Err; c.phase == holding && err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zkerror.ErrConnClosed) {
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
		c.leave(zkerror.ErrConnClosed, false)
		return
	case SessionOver:
		c.leave(zkerror.ErrSessionExpired, false)
		return
	}
	deleted := in.Event == Deleted
	switch in.Watch {
	case OwnWatch:
		c.own = false
		switch {
		case in.Name != c.name, c.renamedTo != "":
			// The rename deletes the znode itself.
		case deleted:
			c.lose()
		case c.phase == queued:
			c.list = true
		}
	case OtherWatch:
		if c.pred.name == in.Name {
			c.pred.watched = false
			c.pred.gone, c.pred.safe = deleted, in.Safe
			if !deleted {
				// The queue was marked as ended, which the next contender notices when it
				// reads the predecessor again. Or, with Policy.Admit, the predecessor has its
				// turn, and this contender may have it, too.
				c.list = c.list || c.cfg.Admit != nil
				c.listAll = c.list
				c.prove(c.proving || c.cfg.Admit != nil)
			}
		}
		if c.before.name == in.Name {
			c.before.watched = false
			c.before.gone, c.before.safe = deleted, in.Safe
			c.list = c.list || deleted
		}
	case QueueWatch:
		c.queue = false
		if c.waitsForAny {
			c.list, c.listAll = true, true
		}
	}
}

// receiveTimer processes the expiration of a timer.
func (c *Contender) receiveTimer(t Timer) {
	switch t {
	case PatienceTimer:
		c.impatient = false
		switch {
		case c.phase == joining && !c.conn.Up:
			c.leave(zkerror.ErrUnreachable, false)
		case c.phase == lost:
			c.leave(zkerror.ErrDeleted, false)
		}
	case ReasonTimer:
		if c.phase == lost {
			c.out = append(c.out, Output{Kind: Report, State: State{Err: zkerror.ErrDeleted}})
		}
	case PrepareTimer:
		if c.phase == queued {
			c.lookahead, c.list = true, true
		}
	case OwnTimer:
		if c.phase == holding && !c.own && c.renamedTo == "" {
			c.send(Request{Kind: ReadOwn, Name: c.name})
		}
	case DoubtTimer:
		c.doubting = false
		if c.phase == queued {
			c.resetWatches()
		}
	case StandbyTimer:
		c.cold = true
	}
}
