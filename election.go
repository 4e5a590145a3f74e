package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/candidatedata"
	"github.com/go-leaderelection/leaderelection/internal/ending"
	"github.com/go-leaderelection/leaderelection/internal/handshake"
	"github.com/go-leaderelection/leaderelection/internal/line"
	"github.com/go-leaderelection/leaderelection/internal/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/internal/znode"
)

// Election is a candidate in an election on ZooKeeper. It implements [Candidate]. Create it
// with [NewElection]. Its methods may be called from any goroutine.
type Election struct {
	conn *zk.Conn
	node string
	*options
	feed *StatusFeed
	tell *teller // nil without hooks

	standing context.Context // until Resign, EndElection or WithContext's end
	stop     context.CancelCauseFunc
	over     chan struct{} // closed when the candidacy is over

	mu       sync.Mutex
	at       electionNode
	started  bool
	grant    *Leadership
	revoke   context.CancelCauseFunc // ends grant
	path     string                  // of the own znode
	removals []*line.Removal         // those that are not confirmed, one for each session
	end      ending.Ending           // by EndElection
	// requested is closed when asked to resign; listening when nobody listens to that any
	// more. Both are nil before anybody calls ResignRequested.
	requested, listening chan struct{}
	renamed              chan struct{} // capacity 1: path is another one
}

var _ Candidate = (*Election)(nil)

// NewElection creates a candidate for the election at node, an existing znode whose
// children are the candidates. It sends a sync and a read of the node, and blocks until
// ZooKeeper answers. It creates the node only if [WithCreateNode] is given. The caller
// remains the owner of conn, which any number of elections may share. If conn is closed
// before a candidate has resigned, its znode may remain until the session expires.
//
// Errors: [ErrNilConn], [ErrConnClosed], [ErrInvalidPath], [ErrInvalidOption],
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
	e := &Election{
		conn: conn, node: node, options: o,
		feed: NewStatusFeed(), over: make(chan struct{}), renamed: make(chan struct{}, 1),
	}
	if err := e.findNode(); err != nil && !(o.rejoin && errors.Is(err, ErrUnreachable)) {
		return nil, fmt.Errorf("election at %s: %w", node, err)
	}
	e.tell = newTeller(e)
	e.standing, e.stop = context.WithCancelCause(o.ctx)
	return e, nil
}

// checkNode refuses what no request can be sent for.
func checkNode(conn *zk.Conn, node string) error {
	if conn == nil {
		return ErrNilConn
	}
	return znode.CheckPath(node)
}

// ID returns the path of the candidate's znode, or "" if the znode was not created yet. It
// changes if the candidate rejoins in a new session ([WithRejoin]).
func (e *Election) ID() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.path
}

// Status implements [Candidate].
func (e *Election) Status() <-chan Status { return e.feed.C() }

// Current implements [Candidate].
func (e *Election) Current() Status { return e.feed.Current() }

// ElectLeader implements [Candidate]. It blocks until the candidacy is over and returns the
// error of the final status, or nil after Resign or when the context of [WithContext] is
// done. With [WithHooks] it also waits for pending hooks, for at most 1.5 s.
func (e *Election) ElectLeader() error {
	e.mu.Lock()
	switch {
	case e.isOver():
		e.mu.Unlock()
		return ErrCandidacyOver
	case e.started:
		e.mu.Unlock()
		return ErrAlreadyStarted
	}
	e.started = true
	e.mu.Unlock()

	return e.conclude(e.stand())
}

// conclude ends the candidacy for the reason err and returns what ElectLeader
// returns.
func (e *Election) conclude(err error) error {
	e.stop(ErrCandidacyOver) // releases the context
	e.listened()
	reason := err
	if errors.Is(err, ErrResigned) {
		err = nil
		e.feed.Withdraw()
	} else {
		e.feed.Finish(Status{CandidateID: e.ID(), WasFollowing: e.Current().NowFollowing, Err: err})
	}
	close(e.over)
	e.tell.ended(reason)
	return err
}

// lineConfig says where and how to stand.
func (e *Election) lineConfig() *line.Config {
	at := e.nodeSeen()
	cfg := &line.Config{
		Conn: e.conn, Dir: e.node, DirCzxid: at.czxid, DirSession: at.session, EndMarker: endMarker,
		Naming: e.naming, Data: candidatedata.Encode(e.clientName, e.value), ACL: e.acl,
		Timeout: e.timeout, CheckInterval: e.interval, Patience: session.Timeout(e.conn, e.timeout), Hint: true, Log: e.log.With("election", e.node, "client", e.clientName),
		Observer: e.tell.observer(),
	}
	if e.rejoin {
		cfg.Patience = 0
	}
	return cfg
}

// stand stands in line, again after each session when it may rejoin, and
// returns what ended the candidacy.
func (e *Election) stand() error {
	// The frames of the calls in which a candidate waits are kept small, with
	// what is rarely needed in functions of its own: its stack can be then.
	for {
		if err := e.locate(); err != nil {
			return e.reason(err)
		}
		removed, err := line.Stand(e.standing, e.lineConfig(), e.changed)
		err = e.left(removed, err)
		// A session may also end while the line waits for the answer to its create. If the
		// election node is another one afterwards, or missing, the line takes this for the
		// end of the election; locate decides what it is.
		elsewhere := errors.Is(err, ErrElectionOver) && e.nodeSeen().session != e.conn.SessionID()
		if !e.rejoin || !elsewhere && !errors.Is(err, ErrSessionExpired) {
			return err
		}
		// Told at once that it is no leader any more; the next place in line
		// may be long in coming.
		e.publish(Status{})
	}
}

// left notes that a place in line has been left, and returns the reason.
func (e *Election) left(removed *line.Removal, err error) error {
	e.mu.Lock()
	e.removals = append(slices.DeleteFunc(e.removals, (*line.Removal).Confirmed), removed)
	e.mu.Unlock()
	err = e.reason(err)
	e.log.Info("candidacy ended", "election", e.node, "client", e.clientName, "id", e.ID(), "reason", err)
	return err
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// reason is why a candidacy or leadership has ended, in terms of this package.
func (e *Election) reason(err error) error {
	switch {
	case errors.Is(err, ErrElectionOver):
		return err
	case e.standing.Err() != nil && errors.Is(err, context.Cause(e.standing)):
		return ErrResigned
	}
	if err = refine(err); errors.Is(err, ErrSessionExpired) && handshake.Of(e.conn).Losses() != e.nodeSeen().losses {
		err = fmt.Errorf("%w: %w", err, ErrDataLost)
	}
	return err
}

// changed is called by the line on the goroutine of ElectLeader.
func (e *Election) changed(s line.State) {
	e.mu.Lock()
	if s.Path != "" && s.Path != e.path {
		e.path = s.Path
		select {
		case e.renamed <- struct{}{}:
		default:
		}
	}
	grant := e.grant
	e.mu.Unlock()

	switch {
	case s.Proven && grant != nil:
	case s.Proven:
		grant, revoke := NewLeadership(s.Token, s.Deadline)
		grant.multi = func(ops []any) ([]zk.MultiResponse, error) { return e.multi(grant, s.Path, ops) }
		e.setGrant(grant, revoke)
		e.publish(Status{Role: Leader, Leadership: grant})
	case s.First && grant != nil:
		e.revokeGrant(ErrLeaseExpired)
		e.publish(Status{Role: Suspended})
	case s.First:
		// Not proven yet: nobody need hear of it before it is.
	case s.Path != "":
		e.publish(Status{NowFollowing: s.Predecessor})
	case grant != nil:
		e.revokeGrant(e.reason(s.Err))
		meanwhile := Status{CandidateID: e.ID()}
		if errors.Is(s.Err, zkerror.ErrDeleted) {
			meanwhile.Role = Suspended
		}
		e.feed.Retract(meanwhile)
	case errors.Is(s.Err, zkerror.ErrDeleted) && e.Current().Role == Suspended:
		// What follows is long in coming.
		e.publish(Status{Role: Suspended})
	}
	e.tell.changed(s)
}

func (e *Election) publish(s Status) {
	s.CandidateID, s.WasFollowing = e.ID(), e.Current().NowFollowing
	e.logStatus(s)
	e.feed.Publish(s)
}

func (e *Election) logStatus(s Status) {
	if e.log.Enabled(context.Background(), slog.LevelInfo) {
		e.log.Info("status changed", "election", e.node, "client", e.clientName, "status", s)
	}
}

func (e *Election) setGrant(grant *Leadership, revoke context.CancelCauseFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.grant, e.revoke = grant, revoke
}

// revokeGrant closes the leadership's Done.
func (e *Election) revokeGrant(reason error) {
	e.mu.Lock()
	revoke := e.revoke
	e.grant, e.revoke = nil, nil
	e.mu.Unlock()
	revoke(reason)
}

// Multi executes ops as one ZooKeeper transaction that commits only while this candidate is
// the leader: the transaction begins with a check of the candidate's znode. Nothing is
// applied after another candidate has become leader, even if this process was stopped or
// requests were delayed. A call without ops verifies at the ensemble that this candidate is
// the leader.
//
// Multi uses the current leadership of the candidate. A goroutine that works for one
// particular leadership should use [Leadership.Multi] instead.
//
// ops must be *[zk.CreateRequest], *[zk.SetDataRequest], *[zk.DeleteRequest] or
// *[zk.CheckVersionRequest]. The responses correspond to ops. The error wraps
// [ErrNotLeader] if the candidate is not the leader, and nothing was applied. It wraps
// [ErrUnconfirmed] if leadership or the connection was lost during the call, so that the
// outcome is unknown. Otherwise it wraps ZooKeeper's error and names the index, kind and
// path of the operation that failed; nothing was applied.
//
// Multi blocks until ZooKeeper answers, but for at most two seconds after the leadership
// ends.
func (e *Election) Multi(ops ...any) ([]zk.MultiResponse, error) {
	e.mu.Lock()
	grant := e.grant
	e.mu.Unlock()
	if grant == nil {
		return nil, ErrNotLeader
	}
	return grant.Multi(ops...)
}

// multi carries out ops while grant lasts, for which the znode own stands.
func (e *Election) multi(grant *Leadership, own string, ops []any) ([]zk.MultiResponse, error) {
	responses, err := grant.grant.Multi(e.conn, own, ErrNotLeader, ops)
	if err != nil && !errors.Is(err, ErrNotLeader) {
		err = fmt.Errorf("transaction as leader of %s: %w", e.node, err)
	}
	return responses, err
}
