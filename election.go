package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/candidacy/record"
	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
)

// Election is a candidate in an election on ZooKeeper. It implements [Candidate]. Create it
// with [NewElection]. Its methods may be called from any goroutine.
type Election struct {
	conn       *zk.Conn
	node       string
	createNode bool // set by WithCreateNode: the candidate creates the election node if it does not exist
	rejoin     bool // set by WithRejoin: the candidate joins again after the loss of its session
	joined     bool // the candidate has a znode; only the goroutine of ElectLeader uses the fields joined and queue
	candidacy  *candidacy
	queue      queue.Config // its Log adds the election node and the client name to each message
	// pauses determines the pauses before the candidate joins again after the servers have rejected a
	// request.
	pauses connection.Backoff

	mu        sync.Mutex
	seen      seenNode
	removals  []*queue.Removal // removals that are not confirmed; one for each session
	ending    int              // number of calls of EndElection that are in progress
	requested chan struct{}    // closed when the candidate is requested to resign; nil before ResignRequested is called
	renamed   chan struct{}    // capacity 1; receives a value when the ID changes; nil before ResignRequested is called
}

var _ Candidate = (*Election)(nil)

// nearHead is the Lookahead of candidates: a new candidate with at least this many candidates ahead of it does not
// prepare for its turn at once, but only after it has waited for some time. In a long queue, most candidates wait
// for long, or leave before their turn.
const nearHead = 10

// NewElection creates a candidate for the election at node, an existing znode whose
// children are the candidates. It reads the node, after a sync if the server does not show it, and
// blocks until ZooKeeper answers. It creates the node only if [WithCreateNode] is given. The caller
// remains the owner of conn, which any number of elections may share. If conn is closed
// before a candidate has resigned, its znode may remain until the session expires. A
// leadership ends before conn is closed if package zkdial has opened it; with zk.Connect,
// another candidate may lead some milliseconds earlier: resign first.
//
// Errors: [ErrInvalid], [ErrConnClosed],
// [ErrNoElection], [ErrPermission], [ErrUnreachable] if ZooKeeper does not answer within
// the session timeout, and the cause of the context of [WithContext]. With [WithRejoin],
// NewElection does not fail with ErrUnreachable: ElectLeader waits for ZooKeeper and looks
// for the election node.
func NewElection(conn *zk.Conn, node string, opts ...Option) (*Election, error) {
	o, err := newOptions(conn, opts)
	if err != nil {
		return nil, err
	}
	if err := checkNode(conn, node); err != nil {
		return nil, err
	}
	o.Log = o.Log.With("election", node, "client", o.clientName)
	e := &Election{
		conn: conn, node: node, createNode: o.createNode, rejoin: o.rejoin,
		queue: queue.Config{
			Config:  contender.Config{Dir: node, Tombstone: tombstone, Naming: o.naming, Lookahead: nearHead},
			Options: o.Options,
			Data:    record.Encode(o.clientName, o.value), Rejoins: o.rejoin,
		},
	}
	if err := e.findNode(o.limitWait); err != nil && !(o.rejoin && errors.Is(err, ErrUnreachable)) {
		return nil, fmt.Errorf("election at %s: %w", node, connection.Explain(conn, err))
	}
	// Create the candidacy last, because a candidacy remains registered with the context until
	// the candidacy is over.
	e.candidacy = newCandidacy(o.ctx, o.Log)
	return e, nil
}

// ID returns the path of the candidate's znode, or "" if the znode was not created yet. It
// changes if the candidate rejoins in a new session ([WithRejoin]).
func (e *Election) ID() string { return e.candidacy.ID() }

// Status implements [Candidate].
func (e *Election) Status() <-chan Status { return e.candidacy.Status() }

// Current implements [Candidate].
func (e *Election) Current() Status { return e.candidacy.Current() }

// Events implements [Candidate].
func (e *Election) Events() <-chan event.Event { return e.candidacy.Events() }

// ElectLeader implements [Candidate]. It blocks until the candidacy is over and returns the
// error of the final status, or nil after Resign or when the context of [WithContext] is
// done.
func (e *Election) ElectLeader() error { return e.candidacy.Run(e.run) }

// run is the algorithm of the candidacy. It joins the queue, with WithRejoin again after each
// session, and returns the reason why the candidacy is over. The stack frame of run is small,
// because it is part of the stack of each idle candidate.
func (e *Election) run(ctx context.Context) error {
	for {
		err := e.findNodeAgain()
		if err == nil {
			var removal *queue.Removal
			removal, err = queue.Run(ctx, e.queueConfig(), e.queueChanged)
			e.leftQueue(removal)
			if errors.Is(err, ErrElectionOver) && ctx.Err() == nil {
				e.confirmNode() // EndElection must not end a later election at the path
			}
		}
		if err = e.rejoinAfter(ctx, e.reason(err)); err != nil {
			return err
		}
	}
}

// leftQueue records the removal of a znode until it is confirmed.
func (e *Election) leftQueue(r *queue.Removal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removals = slices.DeleteFunc(append(e.removals, r), (*queue.Removal).Confirmed)
}

// rejoinAfter is called when the candidate has left the queue because of err. It returns nil if the
// candidate must join again, after a pause if the servers have rejected a request, and otherwise the
// reason why the candidacy is over. A candidate that has never joined does not join again after a
// rejection, because its configuration may be wrong.
func (e *Election) rejoinAfter(ctx context.Context, err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		e.queue.Log.Info("the election node was deleted before the candidate joined: finding it again")
		e.forgetNode()
		return limit.Pause(ctx, e.pauses.Next())
	}
	rejected := connection.IsPassing(err) && e.ID() != ""
	if !e.rejoin || !errors.Is(err, ErrSessionExpired) && !rejected {
		return err
	}
	// With WithRejoin the candidacy continues after the session, unless the program has ended the
	// candidacy at the same time.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The candidate is not the leader any more. Publish this status now, because joining the queue can
	// take long.
	e.candidacy.Publish(Status{})
	if !rejected {
		e.queue.Log.Info("rejoining in a new session", "id", e.ID())
		return nil
	}
	e.queue.Log.Warn("the servers reject the candidate: rejoining", "id", e.ID(), "err", err)
	e.pauses.Max = connection.MaxRejectionPause
	return limit.Pause(ctx, e.pauses.Next())
}

// standbySessions is the number of session timeouts for which the next candidate keeps a lease in
// advance, so that it leads without a request if its predecessor leaves. After that it sends no
// checks until it is at the head of the queue.
const standbySessions = 4

// queueConfig returns the configuration for joining the queue in the present session.
func (e *Election) queueConfig() *queue.Config {
	cfg, seen := &e.queue, e.lastSeen()
	e.mu.Lock()
	if len(e.removals) > 0 {
		// A removal may still read the configuration, so the configuration must not change. It is
		// copied only in this case, because a copy needs memory.
		again := e.queue
		cfg = &again
	}
	e.mu.Unlock()
	timeout := connection.SessionTimeout(e.conn, cfg.Timeout)
	cfg.QueueCzxid, cfg.QueueSession, cfg.Standby = seen.czxid, seen.session, standbySessions*timeout
	// Until the candidate has tried to join, the node can be an empty container, which the servers may remove.
	// After that, the node may contain the candidate's znode, and the servers remove no container with children.
	cfg.QueueMayVanish = e.createNode && !seen.tried
	cfg.QueueUnconfirmed = !seen.confirmed
	cfg.Unused, cfg.UnusedVersion = seen.unused && !seen.tried, seen.version
	e.recordAttempt()
	if !e.rejoin {
		cfg.Patience = timeout
	}
	if e.candidacy.Observed() {
		cfg.Observer = e.queueObserver()
	}
	return cfg
}

// queueObserver returns the functions by which package queue reports events that do not change the state of
// the candidate.
func (e *Election) queueObserver() *queue.Observer {
	return &queue.Observer{
		Watched: func(path string) { e.candidacy.Report(event.Event{Kind: event.Watched, Subject: path}) },
		Vacated: e.candidacy.Vacated,
		Checked: func(sent time.Time, err error) {
			checked := event.Event{Kind: event.Checked, Duration: time.Since(sent)}
			if err != nil {
				checked.Duration, checked.Err = 0, refine(err)
			}
			e.candidacy.Report(checked)
		},
	}
}

// queueChanged translates a state in the queue to calls of candidacy. Package queue calls it on the
// goroutine of ElectLeader.
func (e *Election) queueChanged(s queue.State) {
	// Report each new znode, even if it has the same path as an earlier znode.
	if s.Path != "" && (!e.joined || s.Path != e.ID()) {
		e.candidacy.Join(s.Path)
		e.notifyRenamed()
	}
	e.joined = s.Path != ""
	if e.joined {
		e.confirmNode()
	}
	leading := e.candidacy.Leadership() != nil
	switch {
	case s.Proven && leading:
	case s.Proven:
		g := s.Lease.Grant(s.Token)
		e.candidacy.lead(&Leadership{grant: g, multi: func(l *Leadership, ops []any) ([]zk.MultiResponse, error) {
			return e.multi(l, s.Path, ops)
		}}, g.End)
	case s.First && leading:
		e.candidacy.Suspend(ErrLeaseExpired)
	case s.First:
		// The candidate is at the head of the queue, but its lease is not confirmed. Publish nothing until then.
	case s.Path != "":
		e.candidacy.Publish(Status{NowFollowing: s.Predecessor, Next: s.Next})
	case e.candidacy.Revoke(e.reason(s.Err)):
		interim := Status{}
		if errors.Is(s.Err, ErrDeleted) {
			interim.Role = Suspended
		}
		e.candidacy.Retract(interim)
	case errors.Is(s.Err, ErrDeleted) && e.Current().Role == Suspended:
		// Publish the status now, because it can take long to find out why the znode was deleted.
		e.candidacy.Publish(Status{Role: Suspended})
	}
}

// reason returns the error that the program receives if err has ended the candidacy or a leadership.
func (e *Election) reason(err error) error {
	if errors.Is(err, ErrElectionOver) || errors.Is(err, ErrResigned) {
		return err
	}
	switch err = refine(err); {
	case errors.Is(err, ErrUnreachable), errors.Is(err, ErrConnClosed):
		return connection.Explain(e.conn, err)
	case errors.Is(err, ErrSessionExpired) && connection.RecordOf(e.conn).Facts().Losses != e.lastSeen().losses:
		return fmt.Errorf("%w: %w", err, connection.ErrDataLost)
	case connection.IsRejection(err):
		return fmt.Errorf("election at %s: %w", e.node, err)
	}
	return err
}

// multi executes ops as one transaction that is applied only during the leadership l. znode is the path of
// the candidate's znode.
func (e *Election) multi(l *Leadership, znode string, ops []any) ([]zk.MultiResponse, error) {
	responses, err := txn.Guarded(e.conn, l.grant, []string{znode}, ErrNotLeader, ops)
	if err != nil && !errors.Is(err, ErrNotLeader) {
		err = fmt.Errorf("transaction as leader of %s: %w", e.node, err)
	}
	return responses, err
}

// seenNode is the election node as the candidate has last seen it.
type seenNode struct {
	czxid   int64 // the czxid of the node, or 0 if it was not seen yet
	session int64 // the session in which the node was seen
	losses  int   // how often the servers had lost their data before that session
	tried   bool  // the candidate has tried to join this node since then
	// confirmed means that the candidate has joined this election or learned that it is over, or that a
	// Sync preceded the read. Otherwise the server may have lagged behind, and another node, or none, may
	// have existed at the path.
	confirmed bool
	unused    bool  // the node had neither data nor children, and the client may read it
	version   int32 // the version of the node's data
}

// lastSeen returns the election node as the candidate has last seen it.
func (e *Election) lastSeen() seenNode {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}

// recordAttempt records that the candidate tries to join the election node that it has seen.
func (e *Election) recordAttempt() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen.tried = true
}

// confirmNode records that the candidate has joined the election that it has seen, or that this election is
// over.
func (e *Election) confirmNode() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen.confirmed = true
}

// addEnding adds n to the number of calls of EndElection that are in progress.
func (e *Election) addEnding(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ending += n
}

// isEnding reports whether a call of EndElection is in progress.
func (e *Election) isEnding() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ending > 0
}

// forgetNode makes the candidate read the election node again before it joins.
func (e *Election) forgetNode() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = seenNode{}
}

// checkNode returns an error if conn is nil, or if node is not a path that an election node can have.
func checkNode(conn *zk.Conn, node string) error {
	if conn == nil {
		return connection.ErrNilConn
	}
	return connection.CheckPath(node)
}

// findNodeAgain reads the election node again if the session in which the candidate has seen the node is
// over, because the servers may have lost the node since then. With WithRejoin, findNodeAgain waits for
// ZooKeeper without a limit.
func (e *Election) findNodeAgain() error {
	if seen := e.lastSeen(); seen.czxid != 0 && seen.session == e.conn.SessionID() {
		return nil
	}
	return e.findNode(func() (context.Context, context.CancelFunc) {
		if e.rejoin {
			return context.WithCancel(e.candidacy.Context())
		}
		return context.WithTimeoutCause(e.candidacy.Context(), connection.SessionTimeout(e.conn, e.queue.Timeout), ErrUnreachable)
	})
}

// findNode reads the election node and stores the result. With WithCreateNode it creates the node
// if it does not exist.
func (e *Election) findNode(limit waitLimiter) error {
	before := e.lastSeen()
	known := before.czxid != 0 && before.confirmed
	for {
		session, losses := e.conn.SessionID(), connection.RecordOf(e.conn).Facts().Losses
		seen, err := e.readNode(limit, known)
		seen.session, seen.losses = e.conn.SessionID(), losses
		switch {
		case err != nil:
			return err
		case session != 0 && session != seen.session:
			// The servers may have answered the request in the earlier session, and may have lost the node
			// since then. Read the node again.
			continue
		case seen.czxid == 0 && !e.createNode && !known:
			return fmt.Errorf("%w; create it or use WithCreateNode", ErrNoElection)
		case seen.czxid == 0 && !e.createNode,
			seen.czxid != 0 && known && seen.czxid != before.czxid && !(e.createNode && e.rejoin):
			return fmt.Errorf("%w in the new session, or was created again", ErrNoElection)
		case seen.czxid == 0 && e.isEnding():
			return ErrElectionOver // this candidate may have deleted the node itself
		case seen.czxid == 0:
			if err := e.makeNode(limit); err != nil {
				return err
			}
			continue
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seen = seen
		return nil
	}
}

// makeNode creates the election node and its parents, if they do not exist. If the
// connection breaks, makeNode waits until the client is connected again.
func (e *Election) makeNode(limit waitLimiter) error {
	ctx, cancel := limit()
	defer cancel()
	return refine(connection.MakeZnode(ctx, e.conn, e.node, e.queue.ACL, false))
}

// readNode reads the election node. The czxid of the result is 0 if the node does not exist.
//
// Without a Sync, a server that lags behind could return the state of an earlier election at the same path.
// An outdated state is harmful in two cases: a candidate that was in an election before (known is set)
// compares that election with the present one, and a candidate that must not create the node reports that the
// node does not exist. Other candidates learn in which election they are when they join, so that their first
// read needs no Sync.
func (e *Election) readNode(limit waitLimiter, known bool) (seenNode, error) {
	seen, err := retryRequest(limit, e.conn, func() (seenNode, error) {
		if !known {
			if seen, err := e.getNode(); err != nil || seen.czxid != 0 || e.createNode {
				return seen, err
			}
		}
		if _, err := e.conn.Sync(e.node); err != nil {
			return seenNode{}, err
		}
		seen, err := e.getNode()
		seen.confirmed = true
		return seen, err
	})
	return seen, refine(err)
}

// getNode sends one read of the election node.
func (e *Election) getNode() (seenNode, error) {
	_, stat, err := connection.Get(e.conn, e.node)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return seenNode{}, nil
	case err != nil && !connection.IsUnreadable(err):
		return seenNode{}, err
	}
	unused := err == nil && stat.DataLength == 0 && stat.NumChildren == 0
	return seenNode{czxid: stat.Czxid, unused: unused, version: stat.Version}, nil
}
