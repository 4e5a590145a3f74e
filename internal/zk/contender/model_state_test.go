package contender

import "slices"

const (
	maxMembers = 4
	maxConns   = 4
)

// model is one state of the model of ZooKeeper and its clients. Copies of a model share what their pointers lead
// to, which is cloned before it is changed.
type model struct {
	scenario *scenario

	tree    *tree    // the tree of the ensemble's leader
	base    *tree    // the tree before the first change of log
	log     []change // the changes that some server has not applied, or a client has not seen
	first   int      // the number of the first change of log
	creates int32    // the number of creates

	sessions []session
	conns    [maxConns]*conn
	members  [maxMembers]*member
	ghosts   []ghost
	foreign  uint8 // the number of foreign znodes that were created
	deleting uint8 // the progress of DeleteElection: 0 not started, 1 marked as ended, 2 done
	budget   [faults]uint8
	token    int64 // the token of the last leader
	leader   int8  // the last leader, -1 for none

	own struct{ members, conns uint8 } // the members and connections that are not shared with another state, as bits

	violation string   // what is wrong in this state
	trace     []string // the steps of a replay
	tracing   bool
}

// session is what the servers know of a session.
type session struct {
	id    int64
	conn  int8 // the connection that has created it; -1 for a foreign one
	alive bool
	// leased reports that a lease of this session may be valid. The session does not expire while it is set: this
	// is what connection/lease.go guarantees.
	leased bool
}

// ghost is a create of a broken connection that a server may still execute.
type ghost struct {
	name    string // the name without its number
	session int64
}

// watchKind distinguishes the watches on a znode.
type watchKind uint8

const (
	dataWatch watchKind = iota // a watch on the data, and also on the children of the queue's znode
	childWatch
)

// watchKey identifies a watch of a connection.
type watchKey struct {
	name string
	kind watchKind
}

// pooled is a watch in the pool of a connection, and of the client library.
type pooled struct {
	watchKey
	epoch   uint64 // the epoch in which a request has last set the watch
	version int32  // the version of the znode when the watch was set
}

// handle is a watch that a contender has received with a reply.
type handle struct {
	name  string // "" for none
	kind  watchKind
	fired bool
	event Event
	// sameSession reports that the znode belongs to another contender of the same session, and departed that this
	// other contender has announced its departure.
	sameSession, departed bool
}

// item is what a server has sent to a client.
type item struct {
	member int8 // the contender that receives a reply, or anEvent or ofACheck
	reply  *answered
	event  happening
	zxid   int // the number of changes that the server had applied when it sent the item
}

const (
	anEvent  = -1
	ofACheck = -2
)

// answered is a request with its reply. It is immutable.
type answered struct {
	request Request
	reply   Reply
	set     bool   // the request has set a watch
	version int32  // the version of the watched znode or queue
	watch   handle // a watch of the connection that the request uses, if it has set none
	doubt   bool
	session int64 // the session of the connection when a create was sent
}

// call is a request of a contender that no server has answered.
type call struct {
	request Request
	prefix  string // the name prefix of a create
	session int64  // the session of the connection when the request was sent
	set     bool   // the request sets a watch; otherwise it uses watch, which the connection has already
	watch   handle
	doubt   bool
	stage   uint8 // the step of a request that consists of several steps
}

// progress is a Sync, or a write that is committed, and that the client's server has not applied yet. Until then,
// the server answers no later request of the session.
type progress struct {
	member int8 // the contender, ofACheck, or ofABurial
	upTo   int
	reply  *answered
	search bool
}

const ofABurial = -3

// checkState is the state of a check of the connection's monitor.
type checkState uint8

const (
	noCheck checkState = iota
	checkInFlight
	checkReceived // the client library has received the reply, and the monitor has not yet
)

// check is a request of the connection's monitor that renews the lease and reports missing znodes.
type check struct {
	state   checkState
	session int64
	stale   bool // the check is too old to prove anything
	missing [maxMembers]bool
	paths   [maxMembers]string
}

// conn is a connection, with its server, its watches and its monitor.
type conn struct {
	session       int64
	up            bool
	epoch         uint64
	dying         bool  // the server closes the connection
	closing       bool  // the owner closes the connection
	closedByOwner bool  // the owner has closed the connection, which is not up any more
	closed        bool  // the monitor has noticed that the owner has closed the connection
	count         uint8 // the number of sessions that it has had

	proven bool
	lapses uint64
	check  check

	applied  int   // the number of changes that the connection's server has applied
	seen     int   // the zxid of the newest reply
	tree     *tree // the tree of the server
	net      []item
	pool     []pooled
	server   []watchKey // watches at the server
	resend   bool       // the client library has to set its watches again
	busy     *progress
	deleting []string // znodes that are being deleted in the background
}

// member is a contender with its driver.
type member struct {
	machine *Contender
	conn    int

	calls    []call
	inbox    []*answered // replies that the client library has received
	own      handle
	others   [2]handle
	queue    handle
	timers   uint8
	proved   bool // a check was acknowledged, so the next input is ConnChanged
	notified bool // the state of the connection may have changed

	proving string // the znode that the monitor checks to renew the lease
	missing bool

	attempts     uint8
	fresh        bool  // the create was sent recently enough to be a proof
	created      bool  // a create was applied
	createIsLate bool  // a create was applied after the contender had left
	asked        bool  // the contender was asked to leave
	wakes        uint8 // the number of contenders that the deletion of its znode has woken
	ended        ending
	user         user
	// headed are the attempts whose znodes were at the head of the queue, as bits.
	headed uint8
	// exempt excludes the contender from some rules, because an operator has deleted its znode, or the owner of the
	// connection has closed it.
	exempt bool
}

// ending says whether a contender has output Finish.
type ending uint8

const (
	running ending = iota
	finished
	failed // the contender has finished with an error: a znode may remain
)

// user is what the user of a contender knows.
type user struct {
	next, first, proven bool
	session             int64
	token               int64
	lapses              uint64 // the lapses of the connection when the user was notified last
}

// fork returns a copy that may be changed. It shares members and connections with w until it changes them.
func (w *model) fork() *model {
	next := *w
	next.own.members, next.own.conns = 0, 0
	next.sessions = slices.Clone(w.sessions)
	return &next
}

// member returns contender i for a change. It copies the contender first if other states share it.
func (w *model) member(i int) *member {
	if w.own.members&(1<<i) != 0 {
		return w.members[i]
	}
	w.own.members |= 1 << i
	m := *w.members[i]
	m.calls, m.inbox = slices.Clone(m.calls), slices.Clone(m.inbox)
	w.members[i] = &m
	return &m
}

// conn returns connection i for a change. It copies the connection first if other states share it.
func (w *model) conn(i int) *conn {
	if w.own.conns&(1<<i) != 0 {
		return w.conns[i]
	}
	w.own.conns |= 1 << i
	c := *w.conns[i]
	c.net, c.pool, c.server, c.deleting = slices.Clone(c.net), slices.Clone(c.pool), slices.Clone(c.server), slices.Clone(c.deleting)
	w.conns[i] = &c
	return &c
}

// forkMachine replaces the machine of m by a copy and returns it, so that earlier states keep the
// original.
func (m *member) forkMachine() *Contender {
	c := *m.machine
	for _, names := range []*[]string{
		&c.creates.prefixes, &c.creates.found, &c.creates.orphans, &c.queue.unverified, &c.queue.ignored,
	} {
		*names = slices.Clone(*names)
	}
	m.machine = &c
	return &c
}

// on returns the indices of the contenders that use connection c.
func (w *model) on(c int) []int {
	var found []int
	for i := range w.scenario.members {
		if w.members[i].conn == c {
			found = append(found, i)
		}
	}
	return found
}

// session returns the session with an ID, to be changed; nil for 0.
func (w *model) session(id int64) *session {
	for i := range w.sessions {
		if w.sessions[i].id == id {
			return &w.sessions[i]
		}
	}
	return nil
}

// isAlive reports whether a session is alive at the ensemble.
func (w *model) isAlive(id int64) bool {
	s := w.session(id)
	return s != nil && s.alive
}

// head is the number of changes that were committed.
func (w *model) head() int { return w.first + len(w.log) }

// isLagging reports whether the server of a connection may apply changes late.
func (w *model) isLagging(c int) bool { return w.scenario.lagging&(1<<c) != 0 }
