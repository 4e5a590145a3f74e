package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/line"
	"github.com/go-leaderelection/leaderelection/internal/request"
)

// endMarker is the child of an election node that says that the election is
// over. It is that of Comcast's go-leaderelection, whose candidates heed it
// too; for Curator and kazoo it is no contender.
const endMarker = "DONE"

// DeleteElection ends the election at node, for all candidates, the leader too,
// and deletes the node. It returns when that is done.
//
// No candidate wins any more from the moment at which the election is marked
// as over, and each one gets [ErrElectionOver], newcomers too. An election that
// does not exist is fine. A deletion that was interrupted is finished by the
// next call. A node with children that are no candidates is refused with
// [ErrForeignChildren] before anything is changed. Candidates of Curator do not
// know of the mark: they create a deleted election anew.
//
// Other errors: [ErrNilConn], [ErrConnClosed], [ErrInvalidPath],
// [ErrPermission], and [ErrUnconfirmed], wrapping [ErrUnreachable] or the
// context's cause, when ZooKeeper did not answer for a session timeout or
// [WithContext]'s context ended; the election may be half deleted then, and
// calling again is the cure.
func DeleteElection(conn *zk.Conn, node string, opts ...Option) error {
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	if err := checkNode(conn, node); err != nil {
		return err
	}
	return deleteElection(o, conn, node, 0, limited)
}

// patience is how long a deletion waits for ZooKeeper to answer one request.
type patience bool

const (
	limited patience = false // a session timeout
	forever patience = true
)

func deleteElection(o *options, conn *zk.Conn, node string, czxid int64, p patience) error {
	d := &deletion{options: o, conn: conn, node: node, czxid: czxid, patience: p}
	err := d.run()
	switch {
	case err == nil, errors.Is(err, errGone):
		return nil
	case errors.Is(err, ErrForeignChildren):
		return err
	case errors.Is(err, line.ErrUnreachable), o.ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	return fmt.Errorf("delete election at %s: %w", node, refine(err))
}

// errGone: somebody else has deleted the election.
var errGone = errors.New("election is gone")

// deletion is one deletion of an election under way.
type deletion struct {
	*options
	conn  *zk.Conn
	node  string
	czxid int64 // of node; 0 for whatever is there
	patience
	changed bool
}

// run marks the election as over, deletes the candidates, and then, at once,
// mark and node.
//
// Who takes part must have listed the election. Whoever did so before the mark
// was there is in the first listing after it. Those are deleted from the back,
// so that everybody's own znode goes before their predecessor's and nobody
// becomes the first. Whoever lists later sees the mark and leaves.
func (d *deletion) run() error {
	for {
		contenders, foreign, marked, err := d.list()
		switch {
		case err != nil:
			return err
		case len(foreign) > 0:
			return d.refuse(foreign)
		case !marked:
			_, err = askFor(d, func() (string, error) {
				return d.conn.Create(d.path(endMarker), []byte("done"), 0, d.acl)
			})
			if err != nil && !errors.Is(err, zk.ErrNodeExists) {
				return gone(err)
			}
			d.changed = true
			continue
		}
		d.changed = true
		if err := d.deleteFromTheBack(contenders); err != nil {
			return err
		}
		_, err = askFor(d, func() ([]zk.MultiResponse, error) {
			return d.conn.Multi(
				&zk.DeleteRequest{Path: d.path(endMarker), Version: -1},
				&zk.DeleteRequest{Path: d.node, Version: -1},
			)
		})
		// Newcomers, or somebody else who deletes: the listing shows.
		if !errors.Is(err, zk.ErrNotEmpty) && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
}

func (d *deletion) refuse(foreign []string) error {
	slices.Sort(foreign)
	if d.changed {
		return fmt.Errorf("%w: %q was created in %s while the election was being deleted; delete it and call again", ErrForeignChildren, foreign[0], d.node)
	}
	return fmt.Errorf("%w: %s has %d, among them %q; nothing was changed", ErrForeignChildren, d.node, len(foreign), foreign[0])
}

func gone(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return errGone
	}
	return err
}

// deletesPerRequest keeps a transaction far below the server's limit of a
// megabyte.
const deletesPerRequest = 200

// deleteFromTheBack deletes the last in line first, many at a time. A candidate
// that is gone already makes a transaction fail: the next is without it.
func (d *deletion) deleteFromTheBack(contenders []string) error {
	contenders = slices.Clone(contenders)
	slices.Reverse(contenders)
	for chunk := range slices.Chunk(contenders, deletesPerRequest) {
		for len(chunk) > 0 {
			ops := make([]any, len(chunk))
			for i, name := range chunk {
				ops[i] = &zk.DeleteRequest{Path: d.path(name), Version: -1}
			}
			responses, err := askFor(d, func() ([]zk.MultiResponse, error) { return d.conn.Multi(ops...) })
			if err == nil {
				break
			}
			gone := slices.IndexFunc(responses, func(r zk.MultiResponse) bool { return errors.Is(r.Error, zk.ErrNoNode) })
			if gone < 0 {
				return err
			}
			chunk = slices.Delete(chunk, gone, gone+1)
		}
	}
	return nil
}

// list returns errGone where the election is not there any more. Another node
// at the same path is another election.
func (d *deletion) list() (contenders, foreign []string, marked bool, err error) {
	type listing struct {
		children []string
		stat     *zk.Stat
	}
	l, err := askFor(d, func() (l listing, err error) {
		l.children, l.stat, err = d.conn.Children(d.node)
		return l, err
	})
	if err != nil {
		return nil, nil, false, gone(err)
	}
	if d.czxid == 0 {
		d.czxid = l.stat.Czxid
	}
	if l.stat.Czxid != d.czxid {
		return nil, nil, false, errGone
	}
	contenders, foreign, marked = line.Order(l.children, endMarker)
	return contenders, foreign, marked, nil
}

func (d *deletion) path(name string) string { return path.Join(d.node, name) }

// askFor sends a request that may be repeated and waits as long as is right.
func askFor[T any](d *deletion, f func() (T, error)) (T, error) {
	ctx := d.ctx
	if d.patience == limited {
		timed, cancel := context.WithTimeoutCause(ctx, d.timeout, line.ErrUnreachable)
		defer cancel()
		ctx = timed
	}
	return request.Read(ctx, d.conn, f)
}
