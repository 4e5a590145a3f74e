package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/candidacy/record"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// Observation is an element of the stream that [Observe] returns.
type Observation struct {
	// Leader is the first candidate, or nil if there are no candidates.
	Leader *CandidateInfo
	// Err is the reason why the observation has ended. It is set only in the last element.
	Err error
}

// Observe watches the leader of the election at node without joining the election. The
// returned channel delivers the current leader, or its absence, and then each
// change. A slow reader receives only the newest observation. The channel is closed when
// ctx is done, or after a last element with the error that ended the observation, for
// instance [ErrElectionOver], [ErrConnClosed], [ErrPermission] or [ErrTooLarge]. Errors
// returned by Observe itself are those of [Candidates].
//
// Nothing is delivered while the connection is down, and a server that is partitioned from
// its ensemble may deliver an old leader. Compare tokens to order observations. All
// observations of an election over one connection share one watch, on the leader's znode
// or, if there is no leader, on the election node. The client library cannot remove that
// watch: after ctx is done it remains until the leader leaves, and later calls reuse it.
func Observe(ctx context.Context, conn *zk.Conn, node string, opts ...Option) (<-chan Observation, error) {
	o, _, err := listNames(ctx, conn, node, opts)
	if err != nil {
		return nil, err
	}
	sub := connection.Subscribe(conn, o.Timeout)
	v := &observer{
		conn: conn, node: node, observations: make(chan Observation, 1), sub: sub,
		candidates: watch.NewReader(conn, sub, node, watch.Children),
	}
	go v.run(ctx)
	return v.observations, nil
}

// observer watches the leader of one election. Only the goroutine of run uses its fields.
type observer struct {
	conn         *zk.Conn
	node         string
	observations chan Observation
	sub          *connection.Subscription
	candidates   *watch.Reader // reads the election node while there is no leader
	first        *watch.Reader // reads the znode of the first candidate
	firstID      string

	leaders limit.Changes[CandidateInfo] // the published leaders; a zero CandidateInfo means that there is none
}

// run publishes observations until ctx is done, or until it has published an error.
func (v *observer) run(ctx context.Context) {
	defer close(v.observations)
	defer v.sub.Close()
	for {
		reader, err := v.findLeader(ctx)
		if err == nil {
			_, err = reader.Wait(ctx, nil)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			limit.SendNewest(v.observations, Observation{Err: fmt.Errorf("observe %s: %w", v.node, refine(err))})
			return
		}
	}
}

// findLeader finds and publishes the leader. It returns the reader whose watch fires when the
// leader may have changed.
func (v *observer) findLeader(ctx context.Context) (*watch.Reader, error) {
	for {
		children, err := connection.List(ctx, v.conn, v.node)
		name, err := v.firstOf(ctx, children, err)
		if err == nil && name == "" {
			var found watch.Found
			found, err = v.candidates.Read(ctx)
			name, err = v.firstOf(ctx, found.Children, err)
		}
		if err != nil {
			return nil, err
		}
		if name == "" {
			v.publish(nil)
			return v.candidates, nil
		}
		if id := path.Join(v.node, name); id != v.firstID {
			v.firstID, v.first = id, watch.NewReader(v.conn, v.sub, id, watch.Data)
		}
		found, err := v.first.Read(ctx)
		if errors.Is(err, zk.ErrNoNode) {
			continue // the candidate has left between the two requests
		}
		if err != nil && !connection.IsUnreadable(err) {
			return nil, err
		}
		v.publish(newCandidateInfo(v.firstID, found.Data, found.Stat))
		return v.first, nil
	}
}

// firstOf returns the name of the first candidate. children and err are the result of listing the election
// node. It returns "" if there are no candidates.
func (v *observer) firstOf(ctx context.Context, children []string, err error) (string, error) {
	if errors.Is(err, zk.ErrNoNode) {
		return "", ErrElectionOver
	}
	if err != nil {
		return "", err
	}
	names, _, ended := contender.Order(children, tombstone)
	if ended {
		return "", ErrElectionOver
	}
	first, _, err := queue.FirstContender(ctx, v.conn, v.node, names)
	return first, err
}

// publish delivers the leader, unless the reader has received the same leader last. nil means that there
// is no leader.
func (v *observer) publish(leader *CandidateInfo) {
	var present CandidateInfo // a copy, because the receiver may change the CandidateInfo of the observation
	if leader != nil {
		present = *leader
	}
	if v.leaders.Add(present) {
		limit.SendNewest(v.observations, Observation{Leader: leader})
	}
}

// CandidateInfo describes a candidate to observers.
type CandidateInfo struct {
	// ID is the path of the candidate's znode.
	ID string
	// Name is the client name of the candidate. It is empty if the connection has no right to
	// read it, or if it is larger than the connection accepts.
	Name string
	// Value is the text that the candidate advertises with [WithValue]. It is empty if the
	// candidate advertises none, or if Name is empty because it cannot be read.
	Value string
	// Token is the fencing token that the candidate has as leader.
	Token int64
}

// Candidates returns the candidates of the election at node in the order of succession. The
// first candidate is the leader or is about to become the leader. The result is that of the
// server that conn is connected to, and may be slightly out of date. Candidates blocks
// until ZooKeeper has answered or ctx is done, for at most a session timeout per request.
// Options that are only for candidates are ignored, and so is [WithContext].
//
// Errors are those of [NewElection], and [ErrElectionOver] if the election is being
// deleted.
func Candidates(ctx context.Context, conn *zk.Conn, node string, opts ...Option) ([]CandidateInfo, error) {
	o, names, err := listNames(ctx, conn, node, opts)
	if err != nil {
		return nil, err
	}
	all, err := describeAll(o, conn, node, names)
	if err != nil {
		return nil, fmt.Errorf("list candidates at %s: %w", node, connection.Explain(conn, refine(err)))
	}
	return all, nil
}

// listNames lists the children of the election node that are named like candidates, in the order
// of succession.
func listNames(ctx context.Context, conn *zk.Conn, node string, opts []Option) (*options, []string, error) {
	o, err := newOptions(conn, opts)
	if err != nil {
		return nil, nil, err
	}
	if o.ctx = ctx; ctx == nil {
		return nil, nil, fmt.Errorf("%w: the context is nil", ErrInvalid)
	}
	if err := checkNode(conn, node); err != nil {
		return nil, nil, err
	}
	children, err := retryRequest(o.limitWait, conn, func() ([]string, error) {
		children, _, err := connection.Children(conn, node)
		if errors.Is(err, zk.ErrNoNode) {
			err = ErrNoElection
		}
		return children, err
	})
	if err == nil {
		names, _, ended := contender.Order(children, tombstone)
		if !ended {
			return o, names, nil
		}
		err = ErrElectionOver
	}
	return nil, nil, fmt.Errorf("list candidates at %s: %w", node, connection.Explain(conn, refine(err)))
}

// describeAll reads the znodes of the candidates in names. It omits names that are not names of
// candidates, and candidates that have left.
func describeAll(o *options, conn *zk.Conn, node string, names []string) ([]CandidateInfo, error) {
	ctx, cancel := o.limitWait()
	defer cancel()
	names, _, err := queue.Contenders(ctx, conn, node, names)
	if err != nil {
		return nil, err
	}
	infos, err := connection.Each(names, connection.InFlight, func(_ int, name string) (*CandidateInfo, error) {
		return describe(o, conn, path.Join(node, name))
	})
	if err != nil {
		return nil, err
	}
	var all []CandidateInfo
	for _, info := range infos {
		if info != nil {
			all = append(all, *info)
		}
	}
	return all, nil
}

// describe reads the znode of a candidate. It returns nil if the znode does not exist.
func describe(o *options, conn *zk.Conn, id string) (*CandidateInfo, error) {
	return retryRequest(o.limitWait, conn, func() (*CandidateInfo, error) {
		data, stat, err := connection.Get(conn, id)
		if err != nil && !connection.IsUnreadable(err) {
			return nil, connection.IgnoreNoNode(err)
		}
		return newCandidateInfo(id, data, stat), nil
	})
}

// newCandidateInfo describes a candidate by the data and the Stat of its znode. data is nil if it cannot be
// read, which is possible for candidates of other libraries.
func newCandidateInfo(id string, data []byte, stat *zk.Stat) *CandidateInfo {
	name, value := record.Decode(data)
	return &CandidateInfo{ID: id, Name: name, Value: value, Token: stat.Czxid}
}
