package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// TestSenders_MessagesOfNonMemberHaveNoEffect checks that a process that is not a member cannot make a peer commit an
// entry, stop participating, or learn the directory ID of another peer.
func TestSenders_MessagesOfNonMemberHaveNoEffect(t *testing.T) {
	h := newHarness(t, 3)
	v := h.otherPeers(h.waitForLeader())[0]
	before := v.core.rn.BasicStatus()
	last, term := before.GetCommit(), before.GetTerm()
	e := &raftpb.Entry{Index: new(last + 1), Term: new(uint64(1000)), Data: replica.EncodeEntry(replica.Header{Kind: api.KindState}, []byte("forged"))}
	body, err := proto.Marshal(&raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: new(v.core.names.numberOf("p9")), To: new(v.core.self),
		Term: new(uint64(1000)), LogTerm: new(term), Index: new(last), Commit: new(last + 1), Entries: []*raftpb.Entry{e},
	})
	require.NoError(t, err)
	removed := wire.AppendMembership(nil, api.Membership{Index: 1 << 40, Voters: []api.Peer{{ID: "p9", Addr: "x:1"}}, Removed: []string{v.self.ID}})
	for kind, body := range map[byte][]byte{frameRaft: body, frameMembers: removed, framePassedOn: nil, frameRequest: nil, frameWelcome: nil} {
		require.NoError(t, v.core.Receive("p9", v.core.encodeFrame(kind, body)), "the frame is malformed or too late, and was not dropped before")
	}
	known := announcement{nonce: 1, addr: "x:1", election: election, instances: map[string]string{"p2": "forged"}}.encode()
	require.NoError(t, v.core.Receive("p9", v.core.encodeFrame(frameAnnounce, known)))
	require.Empty(t, v.core.TakeOutput().Instances)
	after := v.core.rn.BasicStatus()
	require.Equal(t, last, after.GetCommit())
	require.Equal(t, term, after.GetTerm())
	require.Equal(t, Follower, v.core.Status().Role)
}

// TestSenders_UnknownLeaderIsAccepted checks that a peer that was disconnected while the members changed
// accepts entries of a new leader that the peer's log does not contain as a member.
func TestSenders_UnknownLeaderIsAccepted(t *testing.T) {
	for name, inLog := range map[string]bool{"a member states it": false, "an entry of the log, which is not applied, states it": true} {
		t.Run(name, func(t *testing.T) {
			h, l := startCluster(t)
			behind := h.otherPeers(l)[0]
			isStatement := func(m transmission) bool { return inLog && m.to == behind.self.ID && m.frame[0] == frameMembers }
			if !inLog {
				h.isolate(behind)
			} else { // let the peer store the entries, but not learn that they are committed
				h.drops = func(m transmission) bool {
					if m.to != behind.self.ID || m.frame[0] != frameRaft {
						return isStatement(m)
					}
					var msg raftpb.Message
					require.NoError(t, proto.Unmarshal(m.frame[frameHeader:], &msg))
					return msg.GetCommit() > behind.core.Status().Commit
				}
			}
			next := h.addPeer(3)
			h.waitFor("the learner is admitted", func() bool {
				current := h.leader()
				return current != nil && len(current.core.Membership().Learners) == 1
			})
			h.advance(time.Second)
			l = h.leader()
			require.NoError(t, h.request(l, changeTo(l.core.newRequestID(), 0, 1, 2, 3)).Err)
			h.waitFor("the new voter leads", func() bool {
				if l := h.leader(); l != nil && l != next {
					l.core.handOver(next.core.self)
				}
				return h.leader() == next
			})
			_, known := behind.core.replica.Members.FindID(next.self.ID)
			require.False(t, known)
			h.cut, h.drops = func(string, string) bool { return false }, isStatement
			took := h.waitFor("the peer receives the entries", func() bool {
				return behind.core.Status().Commit >= next.core.Status().Commit && behind.core.replica.Members.Index == next.core.replica.Members.Index
			})
			require.Less(t, took, cutOffTimeouts*election, "another leader has sent the entries")
		})
	}
}
