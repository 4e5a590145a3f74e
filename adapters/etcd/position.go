package etcd

import "go.etcd.io/etcd/api/v3/etcdserverpb"

// position is a position in the history of an etcd cluster, and the newest known state of an
// election node there. The zero value is before any history.
type position struct {
	cluster  uint64 // cluster is the ID of the cluster.
	revision int64
	nodeRev  int64 // nodeRev is the create revision of the election node, or 0 if it did not exist.
}

// positionOf returns the position in etcd's history at which a request was executed: h is the header of its
// response, which also contained the create revision of the election node.
func positionOf(h *etcdserverpb.ResponseHeader, nodeRev int64) position {
	return position{h.GetClusterId(), h.GetRevision(), nodeRev}
}

// lostSince reports whether etcd has lost data since known was observed: p, the position of the
// response to a linearizable request that was sent after that, does not continue the history of
// known. Revisions never decrease, and a node that was created again has a greater create revision.
func (p position) lostSince(known position) bool {
	if known.cluster == 0 {
		return false
	}
	return p.cluster != known.cluster || p.revision < known.revision || p.nodeRev != 0 && p.nodeRev < known.nodeRev
}
