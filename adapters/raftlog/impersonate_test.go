package raftlog_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk/crashdisk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/transport"
)

// A snapshot that is not the one which is announced with it is refused, and nobody ends by it.
func TestSnapshotIsNotTheOneAnnounced(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		leader := w.leader(t)
		w.propose(t, leader, "a")
		p, sender := w.others(leader)[0], w.others(leader)[1]
		as := w.impersonate(t, sender, p)
		file := w.snapshotOf(t, 500, 9)
		for _, announced := range [][2]uint64{{501, 9}, {500, 8}} {
			err := as.Snapshot(within(t, time.Minute), p.ID, announcing(t, sender, p, announced[0], announced[1]), int64(len(file)), bytes.NewReader(file))
			require.ErrorContains(t, err, "announces a snapshot")
			require.NoError(t, w.node(p).Err())
			require.Empty(t, w.files(t, p, ".", "snap.received"))
		}
		w.propose(t, p, "b")
		w.has(t, w.others(sender), "a", "b")
	})
}

// impersonate stops a peer, and speaks to another one in its place.
func (w *world) impersonate(t *testing.T, p, to api.Peer) *transport.Transport {
	t.Helper()
	require.NoError(t, w.stop(p))
	l, err := w.net.Listen(p.Addr)
	require.NoError(t, err)
	owner, err := identity.ReadOwner(w.disks[p.ID])
	require.NoError(t, err)
	owner.Starts++
	require.NoError(t, owner.Write(w.disks[p.ID]))
	as := transport.New(transport.Config{
		Self: link.Identity{
			Cluster: "test", ID: p.ID, Peer: true, Addr: p.Addr, Insecure: true, Claim: owner.Claim(identity.New()),
		}, Listener: l,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) { return w.net.Dial(ctx, p.Addr, addr) },
	})
	as.SetPeers([]api.Peer{to})
	require.NoError(t, as.Run())
	t.Cleanup(as.Close)
	return as
}

// announcing is the frame with which a leader of term 9 sends a snapshot.
func announcing(t testing.TB, from, to api.Peer, index, term uint64) []byte {
	t.Helper()
	return message(t, from, to, &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), Term: new(uint64(9)),
		Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: &index, Term: &term, ConfState: &raftpb.ConfState{Voters: []uint64{number(from), number(to)}},
		}},
	})
}

func number(p api.Peer) uint64 { return replica.RaftID("test", p.ID) }

// message is a message of the engine as a frame.
func message(t testing.TB, from, to api.Peer, m *raftpb.Message) []byte {
	t.Helper()
	m.From, m.To = new(number(from)), new(number(to))
	body, err := proto.Marshal(m)
	require.NoError(t, err)
	return append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0}, body...)
}

// snapshotOf is a snapshot of that entry.
func (w *world) snapshotOf(t testing.TB, index, term uint64) []byte {
	t.Helper()
	var voters []entry.Peer
	for _, p := range w.peers {
		voters = append(voters, replica.Numbered("test", p))
	}
	tables := replica.New(voters, time.Hour, 200*time.Millisecond)
	tables.Index, tables.Term = index, term
	d := crashdisk.New(rand.New(rand.NewPCG(1, 1)))
	s, err := snapshot.Create(d, ".", snapshot.Meta{Cluster: "test", Index: index, Term: term})
	require.NoError(t, err)
	_, err = tables.View().WriteTo(s.Tables())
	require.NoError(t, err)
	state, err := (&register{}).Snapshot()
	require.NoError(t, err)
	_, err = state.WriteTo(s.Data())
	require.NoError(t, err)
	require.NoError(t, s.Commit())
	r, err := snapshot.OpenFile(d, snapshot.Name)
	require.NoError(t, err)
	defer r.Close()
	raw, err := io.ReadAll(io.NewSectionReader(r.Raw(), 0, r.Size()))
	require.NoError(t, err)
	return raw
}
