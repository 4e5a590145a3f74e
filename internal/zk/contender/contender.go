package contender

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
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
	cfg  *Config
	conn Conn // as of the current step
	out  []Output

	phase   phase
	pending requestSet // requests without a reply

	// What the contender has created.
	search    bool     // a create was not answered: search for its znode
	fresh     bool     // the create was answered, so it proves that the session was alive
	vanished  bool     // the server has reported that the znode was deleted
	prefixes  []string // the prefixes of the names of all its znodes that may exist
	found     []string // znodes of such creates that were not examined yet
	orphans   []string // znodes of such creates that a listing has shown
	name      string   // the contender's znode, empty before it is created
	session   int64    // that owns the znode, 0 if unknown
	czxid     int64    // of the znode, 0 if unknown
	outlived  string   // a znode whose session has expired, unless the name contains no GUID
	renamedTo string   // the name to which the contender is being renamed

	// What it knows of the queue.
	list     bool     // a listing that is sent from now on is needed
	listAll  bool     // the listing must set a watch on the queue
	searched bool     // the orphans are known as of the last Search
	ignored  []string // children that are named like contenders but are not contenders, sorted
	// unverified are the predecessor and children before it whose names do not show whether they are
	// contenders, the predecessor first. It is empty if the predecessor is known to be a contender.
	unverified []string

	listed      bool   // the following is known
	turn        bool   // all earlier contenders have left
	next        bool   // the predecessor is the only earlier contender, and is not replaceable
	waitsForAny bool   // the departure of any earlier contender may bring the turn
	nextToTurn  bool   // all earlier contenders have their turn: a lease in advance is needed
	followed    bool   // a later contender waits, which must be notified of the turn
	blocking    int32  // the number of earlier contenders that the contender waits for
	nextIn      uint64 // the epoch of the listing that has shown next
	pred        other  // the predecessor
	before      other  // the contender before it

	// Watches and timers.
	epoch      uint64 // in which the watches were set
	reset      bool   // set them again, because the connection has broken
	own        bool   // the contender's znode is watched
	ownDoubt   bool   // that watch may not be set at the server yet, see Reply.Doubt
	queue      bool   // the queue is watched
	lookahead  bool
	preparing  bool // PrepareTimer was set
	impatient  bool // PatienceTimer is set
	doubting   bool // DoubtTimer is set
	standingBy bool // StandbyTimer was set
	cold       bool // StandbyTimer has expired
	ownSoon    bool // OwnTimer was set

	proving    bool
	leaseKnown bool   // the state of the lease in conn is that after Prove
	counted    bool   // lapses is known
	lapses     uint64 // when the turn was reported last

	notified bool
	given    bool  // the caller has given the reason
	reason   error // why it leaves

	reported reported
}

// reported is what distinguishes the last reported State from others.
type reported struct {
	name, predecessor string
	first, proven     bool
}

// other is an earlier contender.
type other struct {
	name     string // empty for no contender
	watched  bool
	gone     bool // it was deleted
	safe     bool // see Input.Safe
	verified bool // an unrecognized name is that of an ephemeral znode
	// unreadable reports that the znode cannot be read.
	unreadable bool
}

// requestSet is a set of kinds of requests.
type requestSet uint16

func (s requestSet) has(k RequestKind) bool { return s&(1<<k) != 0 }
func (s *requestSet) add(k RequestKind)     { *s |= 1 << k }
func (s *requestSet) remove(k RequestKind)  { *s &^= 1 << k }

// New returns a contender. Its first input is Start.
func New(cfg *Config) *Contender {
	return &Contender{cfg: cfg, lookahead: cfg.Lookahead}
}

// Name returns the name of the contender's znode. It is empty before the znode is created.
func (c *Contender) Name() string { return c.name }

// Holding reports whether it is the contender's turn.
func (c *Contender) Holding() bool { return c.phase == holding }

// IsPredecessor reports whether the contender with this name is the predecessor.
func (c *Contender) IsPredecessor(name string) bool { return c.phase == queued && c.pred.name == name }

// Done reports whether Finish was output.
func (c *Contender) Done() bool { return c.phase == gone }

// Leaving reports whether the contender has left: its last State was output.
func (c *Contender) Leaving() bool { return c.phase >= leaving }

// Reason returns why the contender has left.
func (c *Contender) Reason() error { return c.reason }

// Watches reports whether the contender still waits for the event of a watch that was set by
// a request with this name. The driver drops all other watches.
func (c *Contender) Watches(name string) bool {
	return c.phase == queued && (c.pred.name == name && c.pred.watched || c.before.name == name && c.before.watched)
}

// WatchesQueue reports the same for the watch on the queue.
func (c *Contender) WatchesQueue() bool { return c.phase == queued && c.queue }

// Step consumes an input, given the current state of the connection, appends the outputs to
// out and returns it.
func (c *Contender) Step(conn Conn, in *Input, out []Output) []Output {
	c.conn, c.out = conn, out
	c.leaseKnown = c.proving
	switch in.Kind {
	case Start:
		c.epoch = conn.Epoch
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
		c.rename(in.Name, in.Prefix)
	}
	c.advance()
	out, c.out = c.out, nil
	return out
}

// advance outputs what follows from the contender's knowledge.
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
			c.send(Request{Kind: FindReason})
		case leaving:
			c.remove()
		}
		if c.phase == before {
			return
		}
	}
}

// over returns the error if the state of the connection alone ends the contender.
func (c *Contender) over() error {
	switch {
	case c.conn.Closed:
		return zkerror.ErrConnClosed
	case c.session != 0 && c.conn.Session != c.session:
		return zkerror.ErrSessionExpired
	}
	return nil
}

// send outputs a request unless one of the same kind is outstanding. It reports whether it
// did.
func (c *Contender) send(r Request) bool {
	if c.pending.has(r.Kind) {
		return false
	}
	r.Epoch, r.Reset = c.conn.Epoch, c.reset
	c.pending.add(r.Kind)
	c.out = append(c.out, Output{Kind: Send, Request: r})
	return true
}

// report outputs a state if it differs from the last reported one.
func (c *Contender) report(s State) {
	if r := (reported{s.Name, s.Predecessor, s.First, s.Proven}); s.Err != nil || r != c.reported {
		c.reported = r
		c.out = append(c.out, Output{Kind: Report, State: s})
	}
}

// setTimer sets a timer unless *set is true.
func (c *Contender) setTimer(set *bool, t Timer, after time.Duration) {
	if !*set {
		*set = true
		c.out = append(c.out, Output{Kind: Set, Timer: t, After: after})
	}
}

// stopTimer stops a timer if *set is true.
func (c *Contender) stopTimer(set *bool, t Timer) {
	if *set {
		*set = false
		c.out = append(c.out, Output{Kind: Stop, Timer: t})
	}
}

// prove starts or ends the renewal of the lease.
func (c *Contender) prove(on bool) {
	if on == c.proving {
		return
	}
	c.proving = on
	kind := Rest
	if on {
		kind = Prove
	}
	c.out = append(c.out, Output{Kind: kind, Name: c.name, Fresh: c.fresh})
}

// leave ends the contender for a reason. given reports that the caller has given the reason, so
// that it implies nothing about the contender's znode.
func (c *Contender) leave(reason error, given bool) {
	if c.phase >= leaving {
		return
	}
	c.phase, c.reason, c.given = leaving, reason, given
	c.report(State{Err: reason})
	c.prove(false)
	c.found, c.orphans = nil, nil
	switch {
	case c.vanished, !given && errors.Is(reason, zkerror.ErrDeleted):
		c.forget()
	case !given && errors.Is(reason, zkerror.ErrSessionExpired) && c.session != 0 && c.session != c.conn.Session:
		c.outlive()
	case !given && errors.Is(reason, zkerror.ErrConnClosed) && len(c.prefixes) > 0:
		c.finish(reason) // no request is answered any more
	}
}

// lose records that the contender's znode was deleted by another client, or with its session.
func (c *Contender) lose() {
	if c.phase != queued && c.phase != holding {
		return
	}
	c.vanished = true
	c.report(State{Err: zkerror.ErrDeleted})
	c.phase = lost
	c.out = append(c.out, Output{Kind: Set, Timer: ReasonTimer, After: reasonDelay})
	if c.cfg.Patience > 0 {
		c.out = append(c.out, Output{Kind: Set, Timer: PatienceTimer, After: c.cfg.Patience + reconnectDelay})
	}
}

// receiveReason receives why the contender's znode was deleted.
func (c *Contender) receiveReason(reply *Reply) {
	if c.phase != lost {
		return
	}
	switch {
	case errors.Is(reply.Err, zkerror.ErrConnClosed):
		c.leave(zkerror.ErrConnClosed, false) // Close deletes the znode first
	case c.over() != nil:
		c.leave(c.over(), false) // expiry deletes the znode first
	case c.session == 0:
		c.leave(zkerror.ErrSessionExpired, false) // the session has changed during the create
	case reply.Err != nil:
		c.leave(zkerror.ErrDeleted, false)
	case reply.Ended:
		c.leave(zkerror.ErrElectionOver, false)
	case c.cfg.QueueMayVanish && reply.QueueCzxid != 0 && c.czxid > reply.QueueCzxid:
		c.leave(zkerror.ErrDeleted, false) // the znode was created in this queue, see joinedOther
	case reply.QueueCzxid == 0, c.isOther(reply.QueueCzxid):
		c.leave(c.noQueue(), false)
	default:
		c.leave(zkerror.ErrDeleted, false)
	}
}

// isOther reports whether the znode of the queue was re-created after the contender joined.
func (c *Contender) isOther(czxid int64) bool {
	return c.cfg.QueueCzxid != 0 && czxid != c.cfg.QueueCzxid
}

// noQueue returns the meaning of a missing queue, in which the contender's znode was or should
// be. A client has deleted it, unless the session in which it was seen has ended: the servers
// may have lost all data since.
func (c *Contender) noQueue() error {
	seen := c.cfg.QueueSession
	if c.listed && c.session != 0 || seen == 0 {
		seen = c.session // the contender has listed the queue
	}
	switch {
	case seen != 0 && c.conn.Session != seen:
		return zkerror.ErrSessionExpired
	case c.cfg.CanMakeQueue:
		return zkerror.ErrDeleted
	}
	return zkerror.ErrElectionOver
}

// noQueueToJoin is noQueue for a contender that has not joined the queue: no create of it may have
// been applied there.
func (c *Contender) noQueueToJoin() error {
	err := c.noQueue()
	if c.cfg.QueueMayVanish && errors.Is(err, zkerror.ErrElectionOver) {
		return zk.ErrNoNode
	}
	return err
}

// joinedOther reports whether a listing of another queue shows that the contender's only create was
// applied there: the queue was made again before the contender joined.
func (c *Contender) joinedOther(names []string) bool {
	return len(c.prefixes) == 1 && slices.Contains(names, c.name) && !slices.Contains(names, c.cfg.Tombstone)
}

// rename continues under another name, at the same position. The znode may be either one
// while the request is in progress, so the absence of either means nothing.
func (c *Contender) rename(to, prefix string) {
	if c.phase != holding || c.renamedTo != "" {
		return
	}
	if !slices.Contains(c.prefixes, prefix) {
		c.prefixes = append(c.prefixes, prefix)
	}
	c.renamedTo = to
	c.send(Request{Kind: Replace, Name: c.name, To: to})
}

// receiveReplace receives the result of a rename.
func (c *Contender) receiveReplace(r *Request, reply *Reply) {
	if c.phase != holding {
		return // remove deletes either znode
	}
	c.renamedTo = ""
	switch {
	case errors.Is(reply.Err, zk.ErrNoNode):
		c.lose() // another client has deleted the old znode
		return
	case reply.Err == nil:
		c.prefixes = slices.DeleteFunc(c.prefixes, func(prefix string) bool { return !strings.HasPrefix(r.To, prefix) })
		c.name, c.own, c.conn.Missing = r.To, true, false
		c.out = append(c.out, Output{Kind: Moved, Name: c.name})
		c.hold() // reports the new name first
	}
	c.out = append(c.out, Output{Kind: Renamed, Err: reply.Err})
}
