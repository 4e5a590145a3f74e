package etcd

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/candidatedata"
	"github.com/go-leaderelection/leaderelection/internal/latest"
)

// Candidates returns the candidates of the election at node in order of succession,
// including those of etcd's package concurrency. The first candidate is the leader, or
// will be notified that it is. Errors are those of [NewElection].
func Candidates(client *clientv3.Client, node string, opts ...Option) ([]leaderelection.CandidateInfo, error) {
	l, err := list(client, node, opts, 0)
	if err != nil {
		return nil, err
	}
	return l.candidates, nil
}

// CurrentLeader returns the first candidate of the election at node. found reports whether
// there is one. Errors are those of [NewElection].
func CurrentLeader(client *clientv3.Client, node string, opts ...Option) (leader leaderelection.CandidateInfo, found bool, err error) {
	l, err := list(client, node, opts, 1)
	if err != nil || len(l.candidates) == 0 {
		return leaderelection.CandidateInfo{}, false, err
	}
	return l.candidates[0], true, nil
}

// listing is what there is of an election at one revision.
type listing struct {
	revision   int64
	node       int64 // the node's create revision
	candidates []leaderelection.CandidateInfo
}

func list(client *clientv3.Client, node string, opts []Option, limit int64) (*listing, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	if err := check(client, node); err != nil {
		return nil, err
	}
	var l *listing
	err = o.ask(client, func(ctx context.Context) (err error) {
		l, err = readListing(ctx, client, node, limit)
		return err
	})
	if err == nil && l.node == 0 {
		err = errNoElection
	}
	if err != nil {
		return nil, fmt.Errorf("list candidates at %s: %w", node, err)
	}
	return l, nil
}

// readListing reads the first candidates, or all if limit is 0.
func readListing(ctx context.Context, client *clientv3.Client, node string, limit int64) (*listing, error) {
	for ; ; limit = 0 {
		answer, err := client.Txn(clientv3.WithRequireLeader(ctx)).Then(
			clientv3.OpGet(node, clientv3.WithKeysOnly()),
			clientv3.OpGet(node+"/", clientv3.WithPrefix(), clientv3.WithLimit(limit),
				clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)),
		).Commit()
		if err != nil {
			return nil, err
		}
		l := &listing{revision: answer.Header.Revision, node: createRevision(answer.Responses[0].GetResponseRange().Kvs)}
		found := answer.Responses[1].GetResponseRange()
		for _, kv := range found.Kvs {
			if isCandidate(node, kv) {
				l.candidates = append(l.candidates, info(kv))
			}
		}
		if limit == 0 || len(l.candidates) > 0 || len(found.Kvs) == 0 {
			return l, nil
		}
		// A foreign key is in the way: all have to be read.
	}
}

func info(kv *mvccpb.KeyValue) leaderelection.CandidateInfo {
	name, value := candidatedata.Decode(kv.Value)
	return leaderelection.CandidateInfo{ID: string(kv.Key), Name: name, Value: value, Token: kv.CreateRevision}
}

// Observe watches the leader of the election at node without joining the election. The
// returned channel delivers the current leader, or its absence, and then each
// change, including changes of the leader's name, which candidates of etcd's package
// concurrency may make. A slow reader receives only the newest observation. The channel
// is closed when ctx is done, or after a last element with
// [leaderelection.ErrElectionOver], [leaderelection.ErrConnClosed] or
// [leaderelection.ErrPermission]. Errors returned by Observe itself are those of
// [NewElection].
//
// Nothing is delivered while etcd does not answer. An observation may be outdated;
// compare tokens to order observations. An observer uses two watches, on the election
// node and on the leader's key. If there is no leader, the second watch covers all keys
// below the node.
func Observe(ctx context.Context, client *clientv3.Client, node string, opts ...Option) (<-chan leaderelection.Observation, error) {
	l, err := list(client, node, append(append([]Option{}, opts...), WithContext(ctx)), 1)
	if err != nil {
		return nil, err
	}
	v := &observer{client: client, node: node, nodeRev: l.node, c: make(chan leaderelection.Observation, 1)}
	go v.run(ctx, l)
	return v.c, nil
}

// observer belongs to its goroutine.
type observer struct {
	client  *clientv3.Client
	node    string
	nodeRev int64
	c       chan leaderelection.Observation

	leader *leaderelection.CandidateInfo
	told   bool
}

func (v *observer) run(ctx context.Context, l *listing) {
	defer close(v.c)
	for {
		err := v.saw(ctx, l)
		if err == nil {
			err = again(ctx, v.client, lookAgain/2, func(ctx context.Context) (err error) {
				l, err = readListing(ctx, v.client, v.node, 1)
				return err
			})
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			latest.Send(v.c, leaderelection.Observation{Err: fmt.Errorf("observe %s: %w", v.node, err)})
			return
		}
	}
}

// saw tells who leads, and waits until there is reason to look again.
func (v *observer) saw(ctx context.Context, l *listing) error {
	if l.node != v.nodeRev {
		return leaderelection.ErrElectionOver
	}
	var leader *leaderelection.CandidateInfo
	key, below := v.node+"/", []clientv3.OpOption{clientv3.WithPrefix()}
	if len(l.candidates) > 0 {
		leader = &l.candidates[0]
		key, below = leader.ID, nil
	}
	v.tell(leader)
	ofNode := deletion(ctx, v.client, v.node, l.revision+1)
	defer ofNode.end()
	ofLeader := newWatch(ctx, v.client, key, l.revision+1, below...)
	defer ofLeader.end()
	return await(ctx, v.client, ofNode, ofLeader)
}

// tell publishes the leader unless it is the one published last.
func (v *observer) tell(leader *leaderelection.CandidateInfo) {
	same := v.told && (leader == nil) == (v.leader == nil) && (leader == nil || *leader == *v.leader)
	v.leader, v.told = leader, true
	if !same {
		latest.Send(v.c, leaderelection.Observation{Leader: leader})
	}
}
