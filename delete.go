package leaderelection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
)

// tombstone is the child of an election node that marks the election as ended. Comcast's
// go-leaderelection uses the same name. Candidates of Curator and kazoo ignore the child.
const tombstone = "DONE"

// DeleteElection ends the election at node for all candidates, including the leader, and
// deletes the node. It blocks until the node is deleted. Deleting an election that does not
// exist is not an error. If an earlier deletion was interrupted, DeleteElection completes
// it. The call takes all earlier writes into account, even if the server it is connected to
// lags behind.
//
// DeleteElection first creates a tombstone. After that only a candidate that is already at
// the head of the queue can become leader, for a moment, until its znode is deleted. All
// candidates, including later ones, end with [ErrElectionOver], except that a candidate that joins
// after the node was deleted and created again joins the new election, and that a candidate with
// [WithCreateNode] creates a new election if it joins after the deletion of the node, or rejoins
// in a new session ([WithRejoin]).
// Candidates of Apache Curator ignore the tombstone and re-create a deleted election.
//
// Errors: [ErrForeignChildren] if the node has children that are not candidates, usually
// before anything was changed; [ErrInvalid], [ErrConnClosed] and
// [ErrPermission]. [ErrUnconfirmed] is returned, together with the reason, if ZooKeeper did
// not answer within the session timeout ([ErrUnreachable]), if the context of [WithContext]
// was done, or if candidates of other libraries kept joining for about a minute. The
// election may be partly deleted then; call DeleteElection again.
func DeleteElection(conn *zk.Conn, node string, opts ...Option) error {
	o, err := newOptions(conn, opts)
	if err != nil {
		return err
	}
	if err := checkNode(conn, node); err != nil {
		return err
	}
	d := &deletion{conn: conn, node: node, acl: o.ACL, ctx: o.ctx, limit: o.limitWait}
	return d.run()
}

// EndElection implements [Candidate]. It deletes the election as [DeleteElection] does. Before
// the candidate has joined an election, it ends the election that exists at the path at the time
// of the call; later, it ends only the election that the candidate has joined. If the deletion is
// not confirmed in time, this candidacy ends nevertheless, and the deletion continues until it
// succeeds or the connection is closed. If the election node has children that are not candidates,
// EndElection returns [ErrForeignChildren] and the candidacy continues.
func (e *Election) EndElection() error {
	// While EndElection runs, the candidate must not create the election node again.
	e.addEnding(1)
	defer e.addEnding(-1)
	return e.candidacy.End("end election at "+e.node, func() error {
		ctx := context.WithoutCancel(e.candidacy.parent)
		d := &deletion{
			conn: e.conn, node: e.node, acl: e.queue.ACL, ctx: ctx,
			limit: func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) },
		}
		if seen := e.lastSeen(); seen.confirmed {
			d.czxid = seen.czxid
		}
		return d.run()
	})
}

// deletion is a call of DeleteElection or EndElection that deletes an election.
type deletion struct {
	conn *zk.Conn
	node string
	acl  []zk.ACL
	// czxid is the creation zxid of the election node, which distinguishes the election from
	// others at the same path. If it is 0, the first listing sets it.
	czxid int64
	// ctx ends the deletion when ctx is done.
	ctx context.Context
	// limit limits the wait for each response.
	limit waitLimiter
	// changed reports that the deletion has sent a write, so that the election may have changed.
	changed bool
}

var (
	// errDeleted ends a deletion when another client has deleted the election.
	errDeleted = errors.New("election was deleted by another client")
	// errReplaced ends a deletion when another election exists at the same path.
	errReplaced = errors.New("election was deleted, and another one exists at its path")
	// errBusy ends a deletion that finds new candidates after each round.
	errBusy = errors.New("other candidates keep joining")
)

// run deletes the election. It returns what DeleteElection returns: nil even if another client has deleted
// the election in the meantime.
func (d *deletion) run() error {
	err := d.deleteElection()
	switch {
	case err == nil, errors.Is(err, errDeleted), errors.Is(err, errReplaced):
		return nil
	case errors.Is(err, ErrForeignChildren):
		return err
	case errors.Is(err, ErrUnreachable), errors.Is(err, errBusy), d.ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	return fmt.Errorf("delete election at %s: %w", d.node, connection.Explain(d.conn, refine(err)))
}

// maxRounds limits the number of attempts of a deletion while new candidates join. With the pauses between
// the attempts, they take about a minute.
const maxRounds = 250

// deleteElection creates the tombstone, deletes the candidates, and then deletes tombstone and node in one
// transaction.
//
// A candidate lists the election before it can lead, unless the transaction that creates its znode shows
// that there is neither another candidate nor a tombstone. The znodes of candidates that have done so
// before the tombstone was created are in the first listing after the creation, and deleteElection deletes
// them. A candidate that lists the election later finds the tombstone and leaves.
func (d *deletion) deleteElection() error {
	for round := 0; round < maxRounds; {
		found, err := d.list()
		switch {
		case errors.Is(err, errReplaced) && d.changed:
			return d.removeTombstone()
		case err != nil:
			return err
		case len(found.foreign) > 0:
			return d.foreignChildren(found.foreign)
		case !found.ended:
			if err := d.createTombstone(found.candidates); err != nil {
				return err
			}
			continue
		}
		d.changed = true
		if err := d.deleteCandidates(found.candidates); err != nil {
			return err
		}
		_, err = retryRequest(d.limit, d.conn, func() ([]zk.MultiResponse, error) {
			return d.conn.Multi(
				&zk.DeleteRequest{Path: d.path(tombstone), Version: -1},
				&zk.DeleteRequest{Path: d.node, Version: -1},
			)
		})
		// If new candidates have joined, or another client deletes the election as well, the next listing
		// shows that.
		if !errors.Is(err, zk.ErrNotEmpty) && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		round++
		if err := limit.Pause(d.ctx, min(time.Duration(round)*5*time.Millisecond, 250*time.Millisecond)); err != nil {
			return err
		}
	}
	return errBusy
}

// createTombstone creates the tombstone. It also returns nil if the state of the election has
// changed, so the caller must list the children again.
//
// The tombstone must not be created in a new election at the same path, because it would end
// that election. Therefore the create is sent once and not retried; the transaction fails if
// the first candidate, whose name is never used again, does not exist; and the data of the
// tombstone identifies the election, so that removeTombstone recognizes the tombstone in
// another election.
//
// The transaction also writes the unchanged data of the first candidate. The write wakes the
// direct follower, which lists the election and finds the tombstone. Otherwise the direct
// follower would become leader without a request if the first candidate left now.
func (d *deletion) createTombstone(candidates []string) error {
	ctx, cancel := d.limit()
	defer cancel()
	ops := []any{&zk.CreateRequest{Path: d.path(tombstone), Data: d.tombstoneData(), Acl: d.acl}}
	if len(candidates) > 0 {
		first := d.path(candidates[0])
		wake, err := connection.Read(ctx, d.conn, func() (*zk.SetDataRequest, error) {
			data, stat, err := connection.Get(d.conn, first)
			if err != nil {
				return nil, err
			}
			return &zk.SetDataRequest{Path: first, Data: data, Version: stat.Version}, nil
		})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil
		case err == nil:
			if _, tooLarge := txn.Size(append(ops, wake)); tooLarge == nil {
				ops = append(ops, wake)
			}
		case !errors.Is(err, zk.ErrNoAuth):
			return err
		}
	}
	d.changed = true
	for {
		_, err := connection.Do(ctx, func() ([]zk.MultiResponse, error) { return d.conn.Multi(ops...) })
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
			return nil
		case errors.Is(err, zk.ErrNoAuth) && len(ops) > 1:
			ops = ops[:1] // the connection may not write to the first candidate: send only the create
			continue
		}
		if final := connection.Final(ctx, d.conn, err); final != nil {
			return final
		}
		return limit.Pause(ctx, 50*time.Millisecond)
	}
}

func (d *deletion) tombstoneData() []byte { return fmt.Appendf(nil, "done %d", d.czxid) }

// removeTombstone deletes the tombstone if this deletion has created it in a later election at the same path.
func (d *deletion) removeTombstone() error {
	type znode struct {
		data []byte
		stat *zk.Stat
	}
	found, err := retryRequest(d.limit, d.conn, func() (z znode, err error) {
		z.data, z.stat, err = connection.Get(d.conn, d.path(tombstone))
		return z, connection.IgnoreNoNode(err)
	})
	if err == nil && bytes.Equal(found.data, d.tombstoneData()) {
		_, err = retryRequest(d.limit, d.conn, func() (struct{}, error) {
			return struct{}{}, connection.IgnoreNoNode(d.conn.Delete(d.path(tombstone), found.stat.Version))
		})
	}
	return err
}

// foreignChildren returns the error for children that are not candidates. It contains the name of one of them.
func (d *deletion) foreignChildren(names []string) error {
	slices.Sort(names)
	if d.changed {
		return fmt.Errorf("%w: %q was created in %s while the election was being deleted; delete it and try again", ErrForeignChildren, names[0], d.node)
	}
	return fmt.Errorf("%w: %s has %d such children, among them %q; nothing was changed", ErrForeignChildren, d.node, len(names), names[0])
}

// deletesPerRequest limits the number of deletions in one transaction, so that the transaction is far
// smaller than a megabyte, the limit of a server.
const deletesPerRequest = 200

// deleteCandidates deletes the candidates in reverse order, so that each znode is deleted before its
// predecessor and no further candidate becomes the first. It deletes several znodes in one
// transaction, which fails if a candidate has left. Then it lists the children again, because others
// may have left as well, and deletes half as many with each later transaction. So only a
// few transactions fail, no matter how many candidates leave in the meantime.
func (d *deletion) deleteCandidates(names []string) error {
	names = slices.Clone(names)
	slices.Reverse(names)
	for most := deletesPerRequest; len(names) > 0; {
		chunk := names[:min(most, len(names))]
		ops := make([]any, len(chunk))
		for i, name := range chunk {
			ops[i] = &zk.DeleteRequest{Path: d.path(name), Version: -1}
		}
		_, err := retryRequest(d.limit, d.conn, func() ([]zk.MultiResponse, error) { return d.conn.Multi(ops...) })
		switch {
		case err == nil, len(chunk) == 1 && errors.Is(err, zk.ErrNoNode):
			names = names[len(chunk):]
			continue
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}
		most = len(chunk) / 2
		children, err := retryRequest(d.limit, d.conn, func() ([]string, error) {
			children, _, err := connection.Children(d.conn, d.node)
			return children, err
		})
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		slices.Sort(children)
		names = slices.DeleteFunc(names, func(name string) bool {
			_, found := slices.BinarySearch(children, name)
			return !found
		})
	}
	return nil
}

// listing contains the children of an election node.
type listing struct {
	candidates []string // the names of the candidates, in the order of succession
	foreign    []string // the names of the children that are neither candidates nor the tombstone
	ended      bool     // the tombstone exists
}

// list lists the children of the election node. It returns errDeleted if the election does not exist, and
// errReplaced if another election exists at the path.
func (d *deletion) list() (listing, error) {
	type node struct {
		children []string
		stat     *zk.Stat
	}
	found, err := retryRequest(d.limit, d.conn, func() (n node, err error) {
		if d.czxid == 0 {
			// Sync first: a server that lags behind may still show an earlier election at the path, and this
			// listing sets czxid.
			if _, err := d.conn.Sync(d.node); err != nil {
				return n, err
			}
		}
		n.children, n.stat, err = connection.Children(d.conn, d.node)
		return n, err
	})
	switch {
	case connection.IsCause(d.ctx, err):
		return listing{}, err
	case errors.Is(err, zk.ErrNoNode):
		return listing{}, errDeleted
	case err != nil:
		return listing{}, err
	case d.czxid == 0:
		d.czxid = found.stat.Czxid
	case d.czxid != found.stat.Czxid:
		return listing{}, errReplaced
	}
	names, foreign, ended := contender.Order(found.children, tombstone)
	ctx, cancel := d.limit()
	defer cancel()
	candidates, others, err := queue.Contenders(ctx, d.conn, d.node, names)
	return listing{candidates, append(foreign, others...), ended}, err
}

func (d *deletion) path(name string) string { return path.Join(d.node, name) }
