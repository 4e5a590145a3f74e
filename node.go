package leaderelection

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/internal/zk/znode"
)

// electionNode is the election node as it was last seen.
type electionNode struct {
	czxid   int64 // 0 before
	session int64 // in which it was seen
	losses  int   // of data, before that session
}

func (e *Election) nodeSeen() electionNode {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at
}

// findNode finds the election node, or creates it with WithCreateNode, within a session
// timeout for each request.
func (e *Election) findNode() error { return e.find(e.options.limit) }

// locate finds the election node again if its session is over: the servers may have lost
// it. With WithRejoin it waits for ZooKeeper without limit.
//
//go:noinline // stand's frame is that of a waiting candidate
func (e *Election) locate() error {
	if at := e.nodeSeen(); at.czxid != 0 && at.session == e.conn.SessionID() {
		return nil
	}
	return e.find(func() (context.Context, context.CancelFunc) {
		if e.rejoin {
			return context.WithCancel(e.candidacy.Context())
		}
		return context.WithTimeoutCause(e.candidacy.Context(), session.Timeout(e.conn, e.timeout), zkerror.ErrUnreachable)
	})
}

func (e *Election) find(limit func() (context.Context, context.CancelFunc)) error {
	was := e.nodeSeen()
	for {
		is := electionNode{session: e.conn.SessionID(), losses: handshake.Of(e.conn).Losses()}
		stat, err := exists(limit, e.conn, e.node)
		switch {
		case err != nil:
			return err
		case is.session != 0 && is.session != e.conn.SessionID():
			continue // which session has answered is not known
		case stat == nil && !e.createNode && was.czxid == 0:
			return fmt.Errorf("%w; create it or use WithCreateNode", ErrNoElection)
		case stat == nil && !e.createNode,
			stat != nil && was.czxid != 0 && stat.Czxid != was.czxid && !(e.createNode && e.rejoin):
			return ErrElectionGone
		case stat == nil:
			if err := e.makeNode(limit); err != nil {
				return err
			}
			continue
		}
		is.czxid, is.session = stat.Czxid, e.conn.SessionID()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.at = is
		return nil
	}
}

// makeNode creates the election node and its missing parents. A connection that breaks in
// the meantime is waited for.
func (e *Election) makeNode(limit func() (context.Context, context.CancelFunc)) error {
	ctx, cancel := limit()
	defer cancel()
	return refine(znode.Make(ctx, e.conn, e.node, e.acl, false))
}

// exists returns the node's Stat, nil if there is none, as of a time after the call.
// A server that lags behind may still have an earlier election at this path, or none.
func exists(limit func() (context.Context, context.CancelFunc), conn *zk.Conn, node string) (*zk.Stat, error) {
	ctx, cancel := limit()
	defer cancel()
	stat, err := request.Read(ctx, conn, func() (*zk.Stat, error) {
		if _, err := conn.Sync(node); err != nil {
			return nil, err
		}
		ok, stat, err := conn.Exists(node)
		if !ok {
			stat = nil
		}
		return stat, err
	})
	return stat, refine(err)
}

// ask has ZooKeeper answer a request that may be repeated, within a session
// timeout.
func ask[T any](o *options, conn *zk.Conn, f func() (T, error)) (T, error) {
	ctx, cancel := o.limit()
	defer cancel()
	value, err := request.Read(ctx, conn, f)
	return value, refine(err)
}

// limit is how long to wait for ZooKeeper where nothing else limits that.
func (o *options) limit() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(o.ctx, session.Timeout(o.conn, o.timeout), zkerror.ErrUnreachable)
}
