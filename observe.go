package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/latest"
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
	sub := connection.Subscribe(conn, o.timeout)
	v := &observer{
		conn: conn, node: node, observations: make(chan Observation, 1), sub: sub,
		candidates: watch.NewReader(conn, sub, node, watch.Children),
	}
	go v.run(ctx)
	return v.observations, nil
}

// observer watches the leader of one election. Its goroutine owns it.
type observer struct {
	conn         *zk.Conn
	node         string
	observations chan Observation
	sub          *connection.Subscription
	candidates   *watch.Reader // reads the election node; used if there is no leader
	first        *watch.Reader // reads the znode of the first candidate
	firstID      string

	leaders latest.Changes[CandidateInfo] // zero for none
}

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
			latest.Send(v.observations, Observation{Err: fmt.Errorf("observe %s: %w", v.node, refine(err))})
			return
		}
	}
}

// findLeader finds and publishes the leader. It returns the reader whose watch fires when the
// leader may have changed.
func (v *observer) findLeader(ctx context.Context) (*watch.Reader, error) {
	for {
		children, err := connection.Read(ctx, v.conn, func() ([]string, error) {
			children, _, err := connection.Children(v.conn, v.node)
			return children, err
		})
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
			continue // it left between the two requests
		}
		if err != nil && !connection.IsUnreadable(err) {
			return nil, err
		}
		v.publish(newCandidateInfo(v.firstID, found.Data, found.Stat))
		return v.first, nil
	}
}

// firstOf returns the name of the first candidate, given the result of listing the election node,
// or "" if there are no candidates.
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

// publish delivers the leader, nil for none, unless it was delivered last.
func (v *observer) publish(leader *CandidateInfo) {
	var present CandidateInfo // a copy, because the receiver may change that of the observation
	if leader != nil {
		present = *leader
	}
	if v.leaders.Add(present) {
		latest.Send(v.observations, Observation{Leader: leader})
	}
}
