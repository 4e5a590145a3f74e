package etcd

// The requests of a candidate, one answer each. All are bounded by their contexts, and ask
// for a server that has a leader: one that is cut off from the others says so at once.

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
)

// place is where a candidate stands: its key.
type place struct {
	id  clientv3.LeaseID
	key string
	rev int64 // the create revision, which is the token
}

// keyOf is a candidate's key, as concurrency.Election names it.
func keyOf(node string, lease clientv3.LeaseID) string {
	return node + "/" + strconv.FormatUint(uint64(lease), 16)
}

// isCandidate reports whether a key below the election node is a candidate: its name is that of
// the lease to which it is attached. Other keys can never lead, so no candidate waits for them.
// The key must have been read with its value: servers of etcd 3.7 omit the lease from replies to
// requests for keys only.
func isCandidate(node string, kv *mvccpb.KeyValue) bool {
	return kv.Lease != 0 && strings.TrimPrefix(string(kv.Key), node+"/") == strconv.FormatUint(uint64(kv.Lease), 16)
}

// keepAlive sends one keepalive. ttl is 0 if the server knows no such lease.
//
// It is not clientv3's KeepAliveOnce, which repeats a request that fails without a pause, for
// as long as its context lasts.
func keepAlive(ctx context.Context, client *clientv3.Client, lease clientv3.LeaseID) (ttl time.Duration, term uint64, err error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel() // ends the stream
	stream, err := etcdserverpb.NewLeaseClient(client.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, 0, clientv3.ContextError(ctx, err)
	}
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(lease)}); err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, clientv3.ContextError(ctx, err)
	} // after EOF the reason is read
	answer, err := stream.Recv()
	if err != nil {
		return 0, 0, clientv3.ContextError(ctx, err)
	}
	return time.Duration(answer.TTL) * time.Second, answer.GetHeader().GetRaftTerm(), nil
}

// view is the election at one revision, as far as it concerns one candidate.
type view struct {
	revision int64
	term     uint64
	node     int64  // the create revision of the election node; 0 if it is missing
	data     []byte // the value of the election node
	own      int64  // the same of the own key
	ahead    string
}

// look reads a view, linearizably and in one transaction.
func look(ctx context.Context, client *clientv3.Client, node string, p place) (*view, error) {
	for limit := int64(1); ; limit = 0 {
		line := append(aheadOf(p.rev), clientv3.WithLimit(limit))
		answer, err := client.Txn(clientv3.WithRequireLeader(ctx)).Then(
			clientv3.OpGet(node),
			clientv3.OpGet(p.key, clientv3.WithKeysOnly()),
			clientv3.OpGet(node+"/", line...),
		).Commit()
		if err != nil {
			return nil, err
		}
		v := &view{revision: answer.Header.Revision, term: answer.Header.RaftTerm}
		found := answer.Responses
		if kvs := found[0].GetResponseRange().Kvs; len(kvs) > 0 {
			v.node, v.data = kvs[0].CreateRevision, kvs[0].Value
		}
		v.own = createRevision(found[1].GetResponseRange().Kvs)
		last := found[2].GetResponseRange()
		for _, kv := range last.Kvs {
			if isCandidate(node, kv) {
				v.ahead = string(kv.Key)
				return v, nil
			}
		}
		if limit == 0 || len(last.Kvs) == 0 {
			return v, nil
		}
		// A foreign key is in the way: all have to be read.
	}
}

// aheadOf selects those that stand ahead of a revision, the nearest first.
func aheadOf(rev int64) []clientv3.OpOption {
	return []clientv3.OpOption{
		clientv3.WithPrefix(), clientv3.WithMaxCreateRev(rev - 1),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend),
	}
}

func createRevision(kvs []*mvccpb.KeyValue) int64 {
	if len(kvs) == 0 {
		return 0
	}
	return kvs[0].CreateRevision
}

const (
	// retry is the time between two tries.
	retry = 100 * time.Millisecond
	// requestLimit is the most that one try may take: the next may get another server.
	requestLimit = 4 * time.Second
)

// again calls f, each time for at most limit, until it succeeds, ctx is done, its error is final,
// or the client is closed. It cancels a request that is being sent when the client is closed,
// because the client would repeat it until the request's own context is done.
func again(ctx context.Context, client *clientv3.Client, limit time.Duration, f func(ctx context.Context) error) error {
	for client.Ctx().Err() == nil {
		try, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), min(limit, requestLimit))
		release := context.AfterFunc(client.Ctx(), cancel)
		err := f(try)
		release()
		cancel()
		switch {
		case err == nil:
			return nil
		case client.Ctx().Err() != nil:
			return errClosed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case final(err) != nil:
			return final(err)
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return errExpired
		}
		if err := request.Pause(ctx, retry); err != nil {
			return err
		}
	}
	return errClosed
}
