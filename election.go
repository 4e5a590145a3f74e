package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/candidatedata"
	"github.com/go-leaderelection/leaderelection/internal/latest"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/znode"
)

// Election is a candidate in an election on ZooKeeper. It implements [Candidate]. Create it
// with [NewElection]. Its methods may be called from any goroutine.
type Election struct {
	conn *zk.Conn
	node string
	*options
	log       *slog.Logger // with the names of the election and the client
	candidacy *Candidacy
	renamed   chan struct{} // capacity 1: the ID has changed
	joined    bool          // the candidate has a znode; belongs to the goroutine of ElectLeader

	mu        sync.Mutex
	at        electionNode
	removals  []*queue.Removal // those that are not confirmed, one for each session
	requested chan struct{}    // closed when asked to resign; nil before ResignRequested
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
	log := o.log.With("election", node, "client", o.clientName)
	e := &Election{
		conn: conn, node: node, options: o, log: log,
		candidacy: NewCandidacy(o.ctx, log), renamed: make(chan struct{}, 1),
	}
	if err := e.findNode(); err != nil && !(o.rejoin && errors.Is(err, ErrUnreachable)) {
		return nil, fmt.Errorf("election at %s: %w", node, err)
	}
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
func (e *Election) ID() string { return e.candidacy.ID() }

// Status implements [Candidate].
func (e *Election) Status() <-chan Status { return e.candidacy.Status() }

// Current implements [Candidate].
func (e *Election) Current() Status { return e.candidacy.Current() }

// Events implements [Candidate].
func (e *Election) Events() <-chan Event { return e.candidacy.Events() }

// ElectLeader implements [Candidate]. It blocks until the candidacy is over and returns the
// error of the final status, or nil after Resign or when the context of [WithContext] is
// done.
func (e *Election) ElectLeader() error { return e.candidacy.Run(e.run) }

// standbyTimeouts is for how many session timeouts the next candidate keeps a lease in advance,
// so that it leads without a request when its predecessor leaves. Then it sends no checks until
// it is the head of the queue.
const standbyTimeouts = 4

// queueConfig returns the configuration for joining the queue.
func (e *Election) queueConfig() *queue.Config {
	at, timeout := e.nodeSeen(), session.Timeout(e.conn, e.timeout)
	cfg := &queue.Config{
		Config: contender.Config{
			Dir: e.node, QueueCzxid: at.czxid, QueueSession: at.session, Tombstone: endMarker, Naming: e.naming,
			Lookahead: true, Patience: timeout, Standby: standbyTimeouts * timeout,
		},
		Conn: e.conn, Data: candidatedata.Encode(e.clientName, e.value), ACL: e.acl,
		Timeout: e.timeout, CheckInterval: e.interval, Log: e.log,
	}
	if e.rejoin {
		cfg.Patience = 0
	}
	if e.candidacy.Observed() {
		cfg.Observer = e.observer()
	}
	return cfg
}

// observer reports what the queue reports in addition to its states.
func (e *Election) observer() *queue.Observer {
	return &queue.Observer{
		Watched: func(path string) { e.candidacy.Report(Event{Kind: EventWatched, Subject: path}) },
		Vacated: e.candidacy.Vacated,
		Checked: func(c session.Check) {
			event := Event{Kind: EventChecked, Duration: time.Since(c.Sent)}
			if c.Err != nil {
				event.Duration, event.Err = 0, refine(c.Err)
			}
			e.candidacy.Report(event)
		},
	}
}

// run joins the queue, again after each session with WithRejoin, and returns what ended the
// candidacy. Its frame is small, because that of an idle candidate contains it.
func (e *Election) run(ctx context.Context) error {
	for {
		if err := e.locate(); err != nil {
			return e.reason(err)
		}
		removed, err := queue.Run(ctx, e.queueConfig(), e.changed)
		if err = e.left(removed, err); !e.rejoins(ctx, err) {
			return err
		}
	}
}

// rejoins reports whether the candidate joins again after it has left the queue because of err.
//
//go:noinline // see run
func (e *Election) rejoins(ctx context.Context, err error) bool {
	// A session may also end while the candidate waits for the reply to its create. If the
	// election node is another one afterwards, or missing, the queue has ended as far as the
	// candidate can see; locate decides whether it has.
	elsewhere := errors.Is(err, ErrElectionOver) && e.nodeSeen().session != e.conn.SessionID()
	if !e.rejoin || ctx.Err() != nil || !elsewhere && !errors.Is(err, ErrSessionExpired) {
		return false
	}
	// The candidate does not lead any more. It may take long until it joins again.
	e.log.Info("rejoining in a new session", "id", e.ID())
	e.candidacy.Publish(Status{})
	return true
}

// left notes the removal of a znode, and returns why the candidate has left the queue.
//
//go:noinline // see run
func (e *Election) left(removed *queue.Removal, err error) error {
	e.mu.Lock()
	e.removals = append(slices.DeleteFunc(e.removals, (*queue.Removal).Confirmed), removed)
	e.mu.Unlock()
	return e.reason(err)
}

// reason is why a candidacy or leadership has ended, in terms of this package.
func (e *Election) reason(err error) error {
	if errors.Is(err, ErrElectionOver) || errors.Is(err, ErrResigned) {
		return err
	}
	if err = refine(err); errors.Is(err, ErrSessionExpired) && handshake.Of(e.conn).Losses() != e.nodeSeen().losses {
		err = fmt.Errorf("%w: %w", err, ErrDataLost)
	}
	return err
}

// changed is called by package queue on the goroutine of ElectLeader.
func (e *Election) changed(s queue.State) {
	// A new znode can have the path of an earlier one.
	if s.Path != "" && (!e.joined || s.Path != e.ID()) {
		e.candidacy.Join(s.Path)
		latest.Send(e.renamed, struct{}{})
	}
	e.joined = s.Path != ""
	leading := e.candidacy.Leadership() != nil
	switch {
	case s.Proven && leading:
	case s.Proven:
		e.candidacy.lead(s.Token, s.Deadline, func(l *Leadership, ops []any) ([]zk.MultiResponse, error) {
			return e.multi(l, s.Path, ops)
		})
	case s.First && leading:
		e.candidacy.Suspend(ErrLeaseExpired)
	case s.First:
		// Not published until it is proven.
	case s.Path != "":
		e.candidacy.Publish(Status{NowFollowing: s.Predecessor})
	case e.candidacy.Revoke(e.reason(s.Err)):
		interim := Status{}
		if errors.Is(s.Err, ErrCandidateDeleted) {
			interim.Role = Suspended
		}
		e.candidacy.Retract(interim)
	case errors.Is(s.Err, ErrCandidateDeleted) && e.Current().Role == Suspended:
		// The next status may be late.
		e.candidacy.Publish(Status{Role: Suspended})
	}
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
	l := e.candidacy.Leadership()
	if l == nil {
		return nil, ErrNotLeader
	}
	return l.Multi(ops...)
}

// multi executes ops while l lasts, for which the znode own stands.
func (e *Election) multi(l *Leadership, own string, ops []any) ([]zk.MultiResponse, error) {
	responses, err := l.grant.Multi(e.conn, own, ErrNotLeader, ops)
	if err != nil && !errors.Is(err, ErrNotLeader) {
		err = fmt.Errorf("transaction as leader of %s: %w", e.node, err)
	}
	return responses, err
}
