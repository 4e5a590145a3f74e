package etcd

import "go.etcd.io/etcd/api/v3/etcdserverpb"

// position is a position in the history of an etcd cluster, with the create revision of an election node
// at that position. The zero value precedes every history.
type position struct {
	cluster  uint64 // cluster is the ID of the cluster.
	revision int64
	nodeRev  int64 // nodeRev is the create revision of the election node, or 0 if it did not exist.
}

// positionOf returns the position at which a request was executed. h is the header of its response, and nodeRev the
// create revision of the election node in the same response, or 0.
func positionOf(h *etcdserverpb.ResponseHeader, nodeRev int64) position {
	return position{h.GetClusterId(), h.GetRevision(), nodeRev}
}

// lostSince reports whether etcd has lost data since known was observed, for example because it was restored from a
// backup. p is the position of the response to a linearizable request that was sent after that. Without a loss,
// revisions never decrease, and a node that was created again has a greater create revision.
func (p position) lostSince(known position) bool {
	if known.cluster == 0 {
		return false
	}
	return p.cluster != known.cluster || p.revision < known.revision || p.nodeRev != 0 && p.nodeRev < known.nodeRev
}
