package contender

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// phase is the state of a contender in the diagram of the package documentation.
type phase uint8

const (
	joining phase = iota
	queued
	holding
	lost
	leaving
	gone
)

// Contender is the state machine of one contender. Create it with New. It must not be used
// concurrently.
type Contender struct {
	cfg *Config
	// conn is the state of the connection during a step. Its Proven is false unless an earlier step has started
	// the renewal of the lease, because a lease that was not requested may prove nothing about this contender.
	conn *connection.State
	out  []Output

	phase   phase
	pending setOf[RequestKind] // kinds of the requests without a reply
	timers  timers

	znode   ownZnode
	creates creates
	queue   knowledge
	watches watches
	lease   lease

	reason   error // the reason why the contender leaves
	reported State
}

// setOf is a set of values of K, one bit for each: request kinds or timers.
type setOf[K ~uint8] uint16

func (s setOf[K]) has(k K) bool { return s&(1<<k) != 0 }
func (s *setOf[K]) add(k K)     { *s |= 1 << k }
func (s *setOf[K]) remove(k K)  { *s &^= 1 << k }

// New returns a contender. The first input that it receives must be Start.
func New(cfg *Config) *Contender {
	return &Contender{cfg: cfg, queue: knowledge{place: unlisted, list: unwatchedList}}
}

// Name returns the name of the contender's znode. It is empty before the znode is created.
func (c *Contender) Name() string { return c.znode.name }

// Holding reports whether it is the contender's turn.
func (c *Contender) Holding() bool { return c.phase == holding }

// IsPredecessor reports whether the contender with this name is the predecessor.
func (c *Contender) IsPredecessor(name string) bool {
	return c.phase == queued && c.queue.predecessor.name == name
}

// Done reports whether the contender has output Finish, its last output.
func (c *Contender) Done() bool { return c.phase == gone }

// Leaving reports whether the contender is leaving or gone, so that it has output its last State.
func (c *Contender) Leaving() bool { return c.phase >= leaving }

// Reason returns the reason why the contender is leaving or gone.
func (c *Contender) Reason() error { return c.reason }

// Watches reports whether the contender still needs the event of a watch. For OtherWatch, name is that of the
// watched contender. The driver drops the watches that are not needed.
func (c *Contender) Watches(w Watch, name string) bool {
	switch w {
	case OtherWatch:
		return c.phase == queued && (c.queue.predecessor.name == name && c.queue.predecessor.znode == watched || c.queue.before.name == name && c.queue.before.znode == watched)
	case QueueWatch:
		return c.phase == queued && c.watches.queue
	}
	return c.phase < leaving
}

// Step consumes an input, given the current state of the connection, appends the outputs to out and returns it.
func (c *Contender) Step(conn connection.State, in *Input, out []Output) []Output {
	in.conn = conn
	c.conn, c.out = &in.conn, out
	c.conn.Proven = conn.Proven && c.lease.proving
	switch in.Kind {
	case Start:
		c.watches.epoch = conn.Epoch
	case Replied:
		c.pending.remove(in.Request.Kind)
		c.receive(&in.Request, &in.Reply)
	case Fired:
		c.receiveEvent(in)
	case Expired:
		c.receiveTimer(in.Timer)
	case Leave:
		c.leave(in.Err, true)
	case Rename:
		c.rename(in.Name)
	}
	c.advance()
	out, c.out, c.conn = c.out, nil, nil
	return out
}

// advance outputs the requests, reports and timers that the contender's knowledge makes necessary.
func (c *Contender) advance() {
	for {
		before := c.phase
		if c.phase < leaving {
			if err := c.over(); err != nil {
				c.leave(err, false)
			}
		}
		switch c.phase {
		case joining:
			c.join()
		case queued:
			c.wait()
		case holding:
			c.hold()
		case lost:
			c.send(FindReason, "")
		case leaving:
			c.remove()
		}
		if c.phase == before {
			return
		}
	}
}

// over returns the error that ends the contender because of the state of the connection, or nil.
func (c *Contender) over() error {
	switch {
	case c.conn.Closed:
		return connection.ErrConnClosed
	case c.znode.session != 0 && c.conn.Session != c.znode.session:
		return connection.ErrSessionExpired
	}
	return nil
}

// output appends an output and returns it. The caller sets its other fields before it calls output again.
func (c *Contender) output(kind OutputKind) *Output {
	c.out = append(c.out, Output{})
	o := &c.out[len(c.out)-1]
	o.Kind = kind
	return o
}

// send outputs a request and returns it, so that the caller can set its other fields. It returns nil if a request
// of the same kind is outstanding.
func (c *Contender) send(kind RequestKind, name string) *Request {
	if c.pending.has(kind) {
		return nil
	}
	c.pending.add(kind)
	r := &c.output(Send).Request
	r.Kind, r.Name, r.Epoch, r.Reset = kind, name, c.conn.Epoch, c.watches.reset
	return r
}

// report outputs State s if it contains an error or differs from the last reported State.
func (c *Contender) report(s State) {
	if s.Err != nil || s != c.reported {
		c.reported = s
		c.output(Report).State = s
	}
}

// receive processes the reply to a request.
func (c *Contender) receive(r *Request, reply *Reply) {
	if reply.Doubt && c.phase == queued {
		c.setTimer(DoubtTimer, connection.DoubtDelay(r.Reset))
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
		c.receiveFindContender(r, reply)
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
			// The later contender was not notified, so it would wait although it may have its turn. If the znode
			// does not exist any more, its deletion has woken the later contender, and the contender need not
			// leave.
			c.leave(err, false)
		}
	case Replace:
		c.receiveReplace(r, reply)
	}
}

// receiveEvent processes the event of a watch.
func (c *Contender) receiveEvent(in *Input) {
	deleted := errors.Is(in.Err, connection.ErrDeleted)
	if in.Err != nil && !deleted {
		c.leave(in.Err, false)
		return
	}
	switch in.Watch {
	case OwnWatch:
		c.watches.own = notWatched
		switch {
		case in.Name != c.znode.name, c.znode.renamingTo != "":
			// Ignore the deletion of the old znode, which a rename deletes.
		case deleted:
			c.lose()
		case c.phase == queued:
			c.listAgain()
		}
	case OtherWatch:
		if c.queue.predecessor.name == in.Name {
			c.queue.predecessor.fire(in)
			if !deleted && c.cfg.Admit != nil {
				// The predecessor may have its turn now, and then this contender may have it, too: list the queue.
				// Without Policy.Admit, a write means that the queue was marked as ended, which the next contender
				// notices when it reads the predecessor again.
				c.queue.list = watchedList
				c.prove(true)
			}
		}
		if c.queue.before.name == in.Name {
			c.queue.before.fire(in)
			if deleted {
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
