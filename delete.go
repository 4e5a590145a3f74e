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

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// endMarker is the child of an election node that says that the election is
// over. It is that of Comcast's go-leaderelection, whose candidates heed it
// too; for Curator and kazoo it is no contender.
const endMarker = "DONE"

// DeleteElection ends the election at node for all candidates, including the leader, and
// deletes the node. It blocks until the node is deleted. Deleting an election that does not
// exist is not an error. If an earlier deletion was interrupted, DeleteElection completes
// it. The call takes all earlier writes into account, even if the server it is connected to
// lags behind.
//
// DeleteElection first creates an end marker. After that no candidate can become leader,
// except one that is already at the head of the queue; it may be leader for a moment, until
// its znode is deleted. All candidates, including later ones, end with [ErrElectionOver].
// Candidates of Apache Curator ignore the marker and re-create a deleted election.
//
// Errors: [ErrForeignChildren] if the node has children that are not candidates, usually
// before anything was changed; [ErrNilConn], [ErrConnClosed], [ErrInvalidPath] and
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
	case errors.Is(err, zkerror.ErrUnreachable), errors.Is(err, errBusy), o.ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	return fmt.Errorf("delete election at %s: %w", node, refine(err))
}

var (
	// errGone: somebody else has deleted the election.
	errGone = errors.New("election was deleted by another client")
	// errBusy: whenever all candidates are deleted there are new ones.
	errBusy = errors.New("other candidates keep joining")
)

// rounds is how often a deletion is tried against newcomers: with the pauses
// between them, about a minute.
const rounds = 250

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
	for round := 0; round < rounds; {
		contenders, foreign, marked, err := d.list()
		switch {
		case err != nil:
			return err
		case len(foreign) > 0:
			return d.refuse(foreign)
		case !marked:
			if err := d.mark(contenders); err != nil {
				return err
			}
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
		round++
		if err := request.Pause(d.ctx, min(time.Duration(round)*5*time.Millisecond, 250*time.Millisecond)); err != nil {
			return err
		}
	}
	return errBusy
}

// mark creates the mark, or finds out that this is not the moment: the caller
// lists again in any case.
//
// The mark must not get into a new election at the same path, where it would
// keep everybody out. It is therefore sent once and never repeated blindly;
// its transaction fails without the first candidate, whose name is never used
// again; and its data names the election (list takes a stray one back).
//
// The same transaction writes the first candidate's data once more, unchanged.
// That wakes the second in line, which may know that it is next and would win
// without asking if the first left now: it looks, and sees the mark.
func (d *deletion) mark(contenders []string) error {
	ctx, cancel := d.limit()
	defer cancel()
	ops := []any{&zk.CreateRequest{Path: d.path(endMarker), Data: d.markData(), Acl: d.acl}}
	if len(contenders) > 0 {
		first := d.path(contenders[0])
		wake, err := request.Read(ctx, d.conn, func() (*zk.SetDataRequest, error) {
			data, stat, err := request.Get(d.conn, first)
			if err != nil {
				return nil, err
			}
			return &zk.SetDataRequest{Path: first, Data: data, Version: stat.Version}, nil
		})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil
		case err == nil:
			ops = append(ops, wake)
		case !errors.Is(err, zk.ErrNoAuth):
			return err
		}
	}
	d.changed = true
	for {
		_, err := request.Do(ctx, func() ([]zk.MultiResponse, error) { return d.conn.Multi(ops...) })
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
			return nil
		case errors.Is(err, zk.ErrNoAuth) && len(ops) > 1:
			ops = ops[:1] // the first candidate cannot be written to
			continue
		case request.Closed(ctx, d.conn, err):
			return zkerror.ErrConnClosed
		case request.Transient(err):
			return request.Pause(ctx, 50*time.Millisecond)
		}
		return err
	}
}

func (d *deletion) markData() []byte { return fmt.Appendf(nil, "done %d", d.czxid) }

// takeBack removes a mark of this deletion from the election that has taken
// the place of the one it was meant for.
func (d *deletion) takeBack() error {
	type mark struct {
		data []byte
		stat *zk.Stat
	}
	m, err := askFor(d, func() (m mark, err error) {
		m.data, m.stat, err = request.Get(d.conn, d.path(endMarker))
		return m, err
	})
	if err == nil && bytes.Equal(m.data, d.markData()) {
		_, err = askFor(d, func() (struct{}, error) {
			return struct{}{}, d.conn.Delete(d.path(endMarker), m.stat.Version)
		})
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

func (d *deletion) refuse(foreign []string) error {
	slices.Sort(foreign)
	if d.changed {
		return fmt.Errorf("%w: %q was created in %s while the election was being deleted; delete it and try again", ErrForeignChildren, foreign[0], d.node)
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
		if d.czxid == 0 {
			// A server that lags behind may still have an earlier election.
			if _, err := d.conn.Sync(d.node); err != nil {
				return l, err
			}
		}
		l.children, l.stat, err = request.Children(d.conn, d.node)
		return l, err
	})
	if err != nil {
		return nil, nil, false, gone(err)
	}
	if d.czxid == 0 {
		d.czxid = l.stat.Czxid
	}
	if l.stat.Czxid != d.czxid {
		if d.changed {
			if err := d.takeBack(); err != nil {
				return nil, nil, false, err
			}
		}
		return nil, nil, false, errGone
	}
	contenders, foreign, marked = contender.Order(l.children, endMarker)
	contenders, others, err := d.sort(contenders)
	return contenders, append(foreign, others...), marked, err
}

// sort returns those of names that are candidates, and those that only are named like
// candidates.
func (d *deletion) sort(names []string) (candidates, others []string, err error) {
	ctx, cancel := d.limit()
	defer cancel()
	return queue.Contenders(ctx, d.conn, d.node, names)
}

func (d *deletion) path(name string) string { return path.Join(d.node, name) }

// askFor sends a request that may be repeated and waits as long as is right.
func askFor[T any](d *deletion, f func() (T, error)) (T, error) {
	ctx, cancel := d.limit()
	defer cancel()
	return request.Read(ctx, d.conn, f)
}

// limit is how long to wait for one answer.
func (d *deletion) limit() (context.Context, context.CancelFunc) {
	if d.patience == forever {
		return context.WithCancel(d.ctx)
	}
	return d.options.limit()
}
