package etcd

import (
	"context"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// candidateKey is the name of a candidate's key with the lease that it belongs to.
type candidateKey struct {
	lease    clientv3.LeaseID
	name     string
	revision int64 // revision is the create revision, which is the fencing token.
}

// keyName returns the key of a candidate, as concurrency.Election names it.
func keyName(node string, lease clientv3.LeaseID) string {
	return node + "/" + strconv.FormatUint(uint64(lease), 16)
}

// namedLease returns the lease whose ID, in hexadecimal, is the name of a key below the election node. It returns 0
// if the name is not a lease's ID.
func namedLease(node, key string) clientv3.LeaseID {
	n, err := strconv.ParseUint(strings.TrimPrefix(key, node+"/"), 16, 64)
	if lease := clientv3.LeaseID(n); err == nil && keyName(node, lease) == key {
		return lease
	}
	return 0
}

// isCandidate reports whether a key below the election node is a candidate's: it is attached to a lease, and its
// name is the ID of that lease. The key must have been read with its value: servers of etcd 3.7 omit the lease
// from responses to requests for keys only.
func isCandidate(node string, kv *mvccpb.KeyValue) bool {
	return kv.Lease != 0 && namedLease(node, string(kv.Key)) == clientv3.LeaseID(kv.Lease)
}

// isKey reports whether kv, the state of a key in a read or in an event of a watch, is still the candidate's key:
// another client can have deleted it, created it again, or written it with another lease or none. kv may be nil.
func (k candidateKey) isKey(kv *mvccpb.KeyValue) bool {
	return kv != nil && kv.CreateRevision == k.revision && clientv3.LeaseID(kv.Lease) == k.lease
}

// createRevision returns the create revision of the only key in kvs, or 0 if kvs is empty.
func createRevision(kvs []*mvccpb.KeyValue) int64 {
	if len(kvs) == 0 {
		return 0
	}
	return kvs[0].CreateRevision
}

// view is what a candidate needs to know of its election, at one revision.
type view struct {
	position
	term        uint64 // term is the term of the cluster at the time of the read.
	nodeValue   []byte
	key         *mvccpb.KeyValue // key is the candidate's key, or nil if it does not exist.
	predecessor string           // predecessor is the key of the predecessor, or "" at the head of the queue.
	next        bool             // next reports that the predecessor is the first candidate, and no other key precedes it.
	// detached reports that another client has detached the predecessor's key from its lease.
	detached bool
}

// readView reads a view in one linearizable transaction.
//
// An earlier key that is not attached to the lease of its name counts as the predecessor as long as that lease
// exists: another client has written the key without the lease, and the key's candidate may still lead. It
// revokes the lease when it learns of the change.
func readView(ctx context.Context, client *clientv3.Client, node string, key candidateKey) (*view, error) {
	// First read only the two nearest earlier keys: the second shows whether the predecessor is the first candidate.
	for limit := int64(2); ; limit = 0 {
		response, err := client.Txn(clientv3.WithRequireLeader(ctx)).Then(
			clientv3.OpGet(node),
			clientv3.OpGet(key.name),
			clientv3.OpGet(node+"/", clientv3.WithPrefix(), clientv3.WithMaxCreateRev(key.revision-1), clientv3.WithLimit(limit),
				clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend)),
		).Commit()
		if err != nil {
			return nil, err
		}
		v := &view{term: response.Header.RaftTerm}
		kvs := response.Responses[0].GetResponseRange().Kvs
		if v.position = positionOf(response.Header, createRevision(kvs)); len(kvs) > 0 {
			v.nodeValue = kvs[0].Value
		}
		if kvs := response.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
			v.key = kvs[0]
		}
		earlierKeys := response.Responses[2].GetResponseRange().Kvs
		complete := limit == 0 || int64(len(earlierKeys)) < limit
		for i, kv := range earlierKeys {
			attached := isCandidate(node, kv)
			exists := attached
			if lease := namedLease(node, string(kv.Key)); !attached && lease != 0 {
				if exists, err = leaseExists(ctx, client, lease); err != nil {
					return nil, err
				}
			}
			if exists {
				v.predecessor, v.detached = string(kv.Key), !attached
				v.next = complete && i == len(earlierKeys)-1
				return v, nil
			}
		}
		if complete {
			return v, nil
		}
		// None of the keys that were read is a candidate's: read all earlier keys.
	}
}

// snapshot is an election at one revision.
type snapshot struct {
	position
	node       *mvccpb.KeyValue   // node is the election node, or nil if it does not exist.
	candidates []*mvccpb.KeyValue // candidates are the keys of candidates in order of succession.
	foreign    []*mvccpb.KeyValue // foreign are the other keys below the node.
}

// readSnapshot reads an election in one linearizable transaction. If limit is not 0, it reads at most limit keys
// below the node, and reads all keys only if none of these is a candidate's.
func readSnapshot(ctx context.Context, client *clientv3.Client, node string, limit int64) (*snapshot, error) {
	for ; ; limit = 0 {
		response, err := client.Txn(clientv3.WithRequireLeader(ctx)).Then(
			clientv3.OpGet(node),
			clientv3.OpGet(node+"/", clientv3.WithPrefix(), clientv3.WithLimit(limit),
				clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)),
		).Commit()
		if err != nil {
			return nil, err
		}
		kvs := response.Responses[0].GetResponseRange().Kvs
		s := &snapshot{position: positionOf(response.Header, createRevision(kvs))}
		if len(kvs) > 0 {
			s.node = kvs[0]
		}
		for _, kv := range response.Responses[1].GetResponseRange().Kvs {
			if isCandidate(node, kv) {
				s.candidates = append(s.candidates, kv)
			} else {
				s.foreign = append(s.foreign, kv)
			}
		}
		if limit == 0 || len(s.candidates) > 0 || len(s.foreign) == 0 {
			return s, nil
		}
		// None of the keys that were read is a candidate's: read all keys.
	}
}
