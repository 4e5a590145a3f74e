package core

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// randomMessage returns a message whose fields have random values. If all is false, it sets only the
// fields that decodeFrequent decodes.
func randomMessage(random *rand.Rand, all bool) *raftpb.Message {
	number := func() *uint64 {
		if random.IntN(4) == 0 {
			return nil
		}
		return new(random.Uint64() >> random.IntN(64))
	}
	m := &raftpb.Message{
		To: number(), From: number(), Term: number(), LogTerm: number(), Index: number(), Commit: number(), RejectHint: number(), Vote: number(),
	}
	if random.IntN(4) > 0 {
		m.Type = raftpb.MessageType(random.IntN(20)).Enum()
		m.Reject = new(random.IntN(2) == 0)
	}
	for range random.IntN(4) {
		e := &raftpb.Entry{Term: number(), Index: number()}
		if random.IntN(2) == 0 {
			e.Type, e.Data = raftpb.EntryType(random.IntN(3)).Enum(), make([]byte, random.IntN(200))
		}
		m.Entries = append(m.Entries, e)
	}
	if all && random.IntN(2) == 0 {
		m.Context = []byte("context")
	}
	if all && random.IntN(2) == 0 {
		m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: number()}}
	}
	return m
}

// TestDecodeMessage_ReturnsSameAsProto checks that decodeMessage returns the same message as package proto, and
// needs only a few allocations for a message with the fields of appends and their replies.
func TestDecodeMessage_ReturnsSameAsProto(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		want := randomMessage(random, true)
		b, err := proto.Marshal(want)
		require.NoError(t, err)
		got, err := decodeMessage(b)
		require.NoError(t, err)
		require.True(t, proto.Equal(want, got), "%v\n%v", want, got)

		if len(b) == 0 {
			continue
		}
		// Both decoders must return the same message for damaged bytes, or both must return an error.
		b[random.IntN(len(b))] ^= byte(1 << random.IntN(8))
		want.Reset()
		wantErr := proto.Unmarshal(b, want)
		got, err = decodeMessage(b[:len(b):len(b)])
		require.Equal(t, wantErr != nil, err != nil)
		require.True(t, err != nil || proto.Equal(want, got), "%v\n%v", want, got)
	}
	m := &raftpb.Message{Type: raftpb.MsgApp.Enum(), To: new(uint64(1)), Term: new(uint64(2)), Entries: []*raftpb.Entry{{Index: new(uint64(3)), Data: []byte("x")}}}
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = decodeMessage(b) }), 6.0)
}
