package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// TestMove: a change that was asked for before a peer has moved neither takes the new address back
// nor removes the peer.
func TestMove(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	a, b, c := entry.Peer{ID: "a", Addr: "a:1", Raft: 1}, entry.Peer{ID: "b", Addr: "b:1", Raft: 2}, entry.Peer{ID: "c", Addr: "c:1", Raft: 3}
	s := New([]entry.Peer{a, b}, time.Hour, time.Second)
	change := func(phase entry.Phase, voters ...entry.Peer) Outcome {
		data := entry.Config{Phase: phase, Peers: voters}.Encode()
		id := requestid.From(now, s.Index, 1)
		raw, err := proto.Marshal(&raftpb.ConfChangeV2{
			Context: entry.Encode(entry.Header{Kind: api.KindConfig, ID: id, Time: now, Sum: entry.Sum(data)}, data),
		})
		require.NoError(t, err)
		o, err := s.Apply(&raftpb.Entry{Index: new(s.Index + 1), Term: new(uint64(1)), Type: raftpb.EntryConfChangeV2.Enum(), Data: raw})
		require.NoError(t, err)
		require.NoError(t, o.Err)
		return o
	}
	move := func(p entry.Peer, addr string) Outcome {
		data := entry.Op{Do: entry.Move, Peer: p.Raft, Addr: addr}.Encode()
		raw := entry.Encode(entry.Header{Kind: api.KindControl, ID: requestid.From(now, s.Index, 2), Time: now, Sum: entry.Sum(data)}, data)
		o, err := s.Apply(&raftpb.Entry{Index: new(s.Index + 1), Term: new(uint64(1)), Type: raftpb.EntryNormal.Enum(), Data: raw})
		require.NoError(t, err)
		return o
	}
	require.ErrorIs(t, move(c, "c:2").Err, api.ErrInvalid, "it is no member")
	change(entry.Admit, c)
	require.ErrorIs(t, move(b, "a:1").Err, api.ErrInvalid, "it is the address of another one")
	before := s.Members.Voters
	o := move(b, "b:2")
	require.NoError(t, o.Err)
	require.True(t, o.Moved)
	require.Equal(t, "b:1", before[1].Addr, "who has asked before is not disturbed")
	require.Equal(t, o.Index, s.Members.Index)
	change(entry.Joint, a, b, c)
	require.NoError(t, move(c, "c:2").Err)
	change(entry.Final, a, b, c)
	require.Empty(t, s.Members.Removed)
	require.Empty(t, s.Members.Clients)
	b.Addr, c.Addr = "b:2", "c:2"
	require.Equal(t, []entry.Peer{a, b, c}, s.Members.Voters)
	change(entry.Joint, a, entry.Peer{ID: "b", Addr: "b:1", Raft: 2})
	require.NoError(t, move(a, "a:2").Err)
	change(entry.Final, a, b)
	require.Equal(t, []string{"c"}, s.Members.Removed)
}
