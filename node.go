package leaderelection

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// seenNode is the election node as it was last seen.
type seenNode struct {
	czxid   int64 // creation zxid of the node, or 0 if it was not seen yet
	session int64 // session in which it was seen
	losses  int   // number of times that the servers had lost their data before that session
	tried   bool  // the candidate has tried to join it since
}

// lastSeen returns the election node as it was last seen.
func (e *Election) lastSeen() seenNode {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}

// noteTry records that the candidate tries to join the election node that it has found.
func (e *Election) noteTry() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen.tried = true
}

// addEnding counts the calls of EndElection in progress.
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

// forgetNode makes the candidate find the election node again before it joins.
func (e *Election) forgetNode() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = seenNode{}
}

// checkNode returns an error if no request can be sent for node over conn.
func checkNode(conn *zk.Conn, node string) error {
	if conn == nil {
		return connection.ErrNilConn
	}
	return connection.CheckPath(node)
}

// findNodeAgain finds the election node again if the session in which it was seen is over, because
// the servers may have lost it. With WithRejoin it waits for ZooKeeper without a limit.
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

// findNode finds the election node. With WithCreateNode it creates the node if it does not exist.
func (e *Election) findNode(limit limiter) error {
	before := e.lastSeen()
	for {
		seen := seenNode{session: e.conn.SessionID(), losses: connection.RecordOf(e.conn).Facts().Losses}
		stat, err := e.statNode(limit)
		session := e.conn.SessionID()
		switch {
		case err != nil:
			return err
		case seen.session != 0 && seen.session != session:
			// The request may have been answered in the earlier session, after which the servers may
			// have lost the node.
			continue
		case stat == nil && !e.createNode && before.czxid == 0:
			return fmt.Errorf("%w; create it or use WithCreateNode", ErrNoElection)
		case stat == nil && !e.createNode,
			stat != nil && before.czxid != 0 && stat.Czxid != before.czxid && !(e.createNode && e.rejoin):
			return fmt.Errorf("%w in the new session, or was created again", ErrNoElection)
		case stat == nil && e.isEnding():
			return ErrElectionOver // this candidate may have deleted the node
		case stat == nil:
			if err := e.makeNode(limit); err != nil {
				return err
			}
			continue
		}
		seen.czxid, seen.session = stat.Czxid, session
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seen = seen
		return nil
	}
}

// makeNode creates the election node and its parents, if they do not exist. It waits for the
// connection if that breaks.
func (e *Election) makeNode(limit limiter) error {
	ctx, cancel := limit()
	defer cancel()
	return refine(connection.MakeZnode(ctx, e.conn, e.node, e.queue.ACL, false))
}

// statNode returns the Stat of the election node, or nil if the node does not exist. The result
// is not older than the call: without Sync, a server that lags behind could return the state of
// an earlier election at the same path.
func (e *Election) statNode(limit limiter) (*zk.Stat, error) {
	stat, err := read(limit, e.conn, func() (*zk.Stat, error) {
		if _, err := e.conn.Sync(e.node); err != nil {
			return nil, err
		}
		exists, stat, err := e.conn.Exists(e.node)
		if !exists {
			stat = nil
		}
		return stat, err
	})
	return stat, refine(err)
}
