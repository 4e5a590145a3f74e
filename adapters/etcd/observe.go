package etcd

import (
	"context"
	"fmt"
	"log/slog"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/candidacy/record"
)

// Candidates returns the candidates of the election at node in order of succession,
// including those of etcd's package concurrency. The first candidate is the leader, or
// will be notified that it is. Candidates blocks until etcd answers, ctx is done, or a
// session timeout has passed; [WithContext] is ignored. Errors are those of [NewElection].
func Candidates(ctx context.Context, client *clientv3.Client, node string, opts ...Option) ([]leaderelection.CandidateInfo, error) {
	s, err := readElection(ctx, client, node, opts, 0)
	if err != nil {
		return nil, err
	}
	var all []leaderelection.CandidateInfo
	for _, kv := range s.candidates {
		all = append(all, candidateInfo(kv))
	}
	return all, nil
}

// readElection reads an election, or only its first candidate if limit is 1. It returns errNoElection if
// the election node does not exist.
func readElection(ctx context.Context, client *clientv3.Client, node string, opts []Option, limit int64) (*snapshot, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	if o.ctx = ctx; ctx == nil {
		return nil, fmt.Errorf("%w: the context is nil", leaderelection.ErrInvalid)
	}
	if err := checkArguments(client, node); err != nil {
		return nil, err
	}
	var s *snapshot
	err = o.retryWithinTimeout(client, func(ctx context.Context) (err error) {
		s, err = readSnapshot(ctx, client, node, limit)
		return err
	})
	if err == nil && s.node == nil {
		err = errNoElection
	}
	if err != nil {
		return nil, fmt.Errorf("list candidates at %s: %w", node, err)
	}
	return s, nil
}

func candidateInfo(kv *mvccpb.KeyValue) leaderelection.CandidateInfo {
	name, value := record.Decode(kv.Value)
	return leaderelection.CandidateInfo{ID: string(kv.Key), Name: name, Value: value, Token: kv.CreateRevision}
}

// Observe watches the leader of the election at node without joining the election. The
// returned channel delivers the current leader, or its absence, and then each
// change, including changes of the leader's name, which candidates of etcd's package
// concurrency may make. A slow reader receives only the newest observation. The channel
// is closed when ctx is done, or after a last element with
// [leaderelection.ErrElectionOver] or [leaderelection.ErrConnClosed]. Errors returned by
// Observe itself are those of [NewElection].
//
// Nothing is delivered while etcd does not answer, or rejects requests because of a
// missing permission. If etcd has lost data, Observe continues with the election that
// exists at node there. An observation may be outdated;
// compare tokens to order observations. An observer uses two watches, on the election
// node and on the leader's key. If there is no leader, the second watch covers all keys
// below the node.
func Observe(ctx context.Context, client *clientv3.Client, node string, opts ...Option) (<-chan leaderelection.Observation, error) {
	s, err := readElection(ctx, client, node, opts, 1)
	if err != nil {
		return nil, err
	}
	options, _ := newOptions(opts) // readElection has checked them.
	o := &observer{client: client, node: node, log: options.log.With("election", node), known: s.position, observations: make(chan leaderelection.Observation, 1)}
	go o.observe(ctx, s)
	return o.observations, nil
}

// observer is a call of Observe. Its fields belong to its goroutine.
type observer struct {
	client       *clientv3.Client
	node         string
	log          *slog.Logger
	known        position // known is the position of the last snapshot, to recognize a loss of data.
	observations chan leaderelection.Observation

	// leaders detects changes of the leader. The zero CandidateInfo means that there is no leader.
	leaders limit.Changes[leaderelection.CandidateInfo]
}

// observe publishes observations until ctx is done or the election is over.
func (o *observer) observe(ctx context.Context, s *snapshot) {
	defer close(o.observations)
	requests := retrier{o.client, rereadInterval / 2, true, &outageLog{client: o.client, log: o.log}}
	for {
		err := o.handleSnapshot(ctx, s)
		if err == nil {
			err = requests.run(ctx, func(ctx context.Context) (err error) {
				s, err = readSnapshot(ctx, o.client, o.node, 1)
				return err
			})
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			limit.SendNewest(o.observations, leaderelection.Observation{Err: fmt.Errorf("observe %s: %w", o.node, err)})
			return
		}
	}
}

// handleSnapshot publishes the leader of s, and blocks until the election should be read again.
func (o *observer) handleSnapshot(ctx context.Context, s *snapshot) error {
	switch lost := s.lostSince(o.known); {
	case lost:
		o.log.Warn(errDataLost.Error(), "revision", s.revision, "known", o.known.revision)
	// After a loss of data the node may be missing (nodeRev 0); its creation then does not end the election.
	case s.nodeRev != o.known.nodeRev && o.known.nodeRev != 0:
		return leaderelection.ErrElectionOver
	}
	o.known = s.position
	var leader *leaderelection.CandidateInfo
	key, scope := o.node+"/", []clientv3.OpOption{clientv3.WithPrefix()}
	if len(s.candidates) > 0 {
		info := candidateInfo(s.candidates[0])
		leader, key, scope = &info, info.ID, nil
	}
	o.publish(leader)
	nodeWatch := watchDeletion(ctx, o.client, o.node, s.revision+1)
	defer nodeWatch.close()
	leaderWatch := newWatch(ctx, o.client, key, s.revision+1, scope...)
	defer leaderWatch.close()
	return waitForChange(ctx, o.client, nodeWatch, leaderWatch)
}

// publish sends an observation if the leader has changed.
func (o *observer) publish(leader *leaderelection.CandidateInfo) {
	var present leaderelection.CandidateInfo // a copy, because the receiver may change leader
	if leader != nil {
		present = *leader
	}
	if o.leaders.Add(present) {
		limit.SendNewest(o.observations, leaderelection.Observation{Leader: leader})
	}
}
