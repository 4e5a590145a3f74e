package core

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestSnapshotOffer_UnneededDataIsRejected checks that a peer rejects a snapshot that was not sent by the
// leader of the current term, or that the peer does not need, before it receives the snapshot's data.
func TestSnapshotOffer_UnneededDataIsRejected(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*snapshotOffer)
		err    error // nil if the peer should receive the snapshot
	}{
		"from the leader":                            {func(*snapshotOffer) {}, nil},
		"from another peer":                          {func(o *snapshotOffer) { o.sender, o.author = 2, 2 }, api.ErrRefused},
		"no leader is known, and the sender neither": {func(o *snapshotOffer) { o.lead, o.sender, o.author = raft.None, 9, 9 }, api.ErrRefused},
		"of an earlier term":                         {func(o *snapshotOffer) { o.term = 6 }, api.ErrRefused},
		"of a later term":                            {func(o *snapshotOffer) { o.term = 8 }, api.ErrRefused},
		"in the name of the leader":                  {func(o *snapshotOffer) { o.sender = 2 }, errFrame},
		"for another peer":                           {func(o *snapshotOffer) { o.to = 2 }, errFrame},
		"another message":                            {func(o *snapshotOffer) { o.kind = raftpb.MsgApp }, errFrame},
		"applied":                                    {func(o *snapshotOffer) { o.index = 100 }, api.ErrInvalid},
		"next entry":                                 {func(o *snapshotOffer) { o.index = 101 }, nil},
		"empty":                                      {func(o *snapshotOffer) { o.size = 0 }, api.ErrInvalid},
		"negative size":                              {func(o *snapshotOffer) { o.size = -1 }, api.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			o := snapshotOffer{
				from: "a", sender: 1, kind: raftpb.MsgSnap, author: 1, to: 3, term: 7, index: 200, size: 1 << 20,
				lead: 1, self: 3, ownTerm: 7, appliedIndex: 100,
			}
			c.change(&o)
			require.ErrorIs(t, o.check(), c.err)
		})
	}
}
