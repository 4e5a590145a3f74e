package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

func TestDecodeEntry_RestoresEntry(t *testing.T) {
	id, now := api.NewRequestID(), time.Unix(0, time.Now().UnixNano())
	for _, h := range []Header{
		{Kind: api.KindState, ID: id, Time: now, Sum: 7},
		{Kind: api.KindState, ID: id, Time: now, Guard: Guard{"e", 12}},
		{Kind: api.KindState, ID: id, Time: now, Guard: Guard{"", 1}},
		{Kind: api.KindControl, ID: id, Time: now, Sum: 1 << 31},
	} {
		for _, data := range []string{"", "x", "some data"} {
			d, err := DecodeEntry(&raftpb.Entry{Index: new(uint64(5)), Term: new(uint64(2)), Data: EncodeEntry(h, []byte(data))})
			require.NoError(t, err)
			require.True(t, d.Time.Equal(h.Time))
			d.Time = h.Time
			require.Equal(t, h, d.Header)
			require.Equal(t, data, string(d.Data))
			require.Equal(t, uint64(5), d.Index)
			require.Equal(t, uint64(2), d.Term)
			require.Equal(t, h.Kind == api.KindControl, d.Entry().Data == nil)
		}
	}
	d, err := DecodeEntry(&raftpb.Entry{Index: new(uint64(5)), Term: new(uint64(2))})
	require.NoError(t, err)
	require.Equal(t, api.KindCheckpoint, d.Kind)
}

func TestDecodeEntry_RestoresConfig(t *testing.T) {
	c := Config{Phase: Joint, Peers: []Peer{{"a", "host:1", 7}}}
	raw, err := proto.Marshal(&raftpb.ConfChangeV2{Context: EncodeEntry(Header{Kind: api.KindConfig, ID: api.NewRequestID()}, c.Encode())})
	require.NoError(t, err)
	d, err := DecodeEntry(&raftpb.Entry{Type: raftpb.EntryConfChangeV2.Enum(), Data: raw})
	require.NoError(t, err)
	require.NotNil(t, d.Change)
	read, err := DecodeConfig(d.Data)
	require.NoError(t, err)
	require.Equal(t, c, read)
	// An entry of the kind Config must have the engine's type ConfChangeV2, and no other kind may have this
	// type.
	_, err = DecodeEntry(&raftpb.Entry{Data: EncodeEntry(Header{Kind: api.KindConfig}, nil)})
	require.ErrorIs(t, err, ErrMalformed)
	raw, err = proto.Marshal(&raftpb.ConfChangeV2{Context: EncodeEntry(Header{Kind: api.KindState}, nil)})
	require.NoError(t, err)
	_, err = DecodeEntry(&raftpb.Entry{Type: raftpb.EntryConfChangeV2.Enum(), Data: raw})
	require.ErrorIs(t, err, ErrMalformed)
}

// FuzzDecodeEntry decodes arbitrary bytes as an entry. The decoder must reject the bytes, or the
// encoding of the result must equal the bytes.
func FuzzDecodeEntry(f *testing.F) {
	f.Add(EncodeEntry(Header{Kind: api.KindState, Guard: Guard{"election", 3}}, []byte("data")))
	f.Add(EncodeEntry(Header{Kind: api.KindControl}, Op{Do: Join, Election: "e"}.Encode()))
	f.Add([]byte{0x80})
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := DecodeEntry(&raftpb.Entry{Data: raw})
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		if d.Kind != api.KindCheckpoint {
			require.Equal(t, raw, EncodeEntry(d.Header, d.Data))
		}
		if d.Kind == api.KindControl {
			_, _ = DecodeOp(d.Data)
		}
	})
}

// FuzzDecodeConfigAndOp decodes arbitrary bytes as a change of the members and as an operation. The decoder must
// reject the bytes, or decode the same value again after encoding it.
func FuzzDecodeConfigAndOp(f *testing.F) {
	f.Add(Config{Phase: Admit, Peers: []Peer{{"a", "a:1", 7}}}.Encode())
	f.Add(Op{Do: Join, Election: "e", Candidate: "c", Peer: 3}.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := DecodeConfig(data); err == nil {
			again, err := DecodeConfig(c.Encode())
			require.NoError(t, err)
			require.Equal(t, c, again)
		} else {
			require.ErrorIs(t, err, ErrMalformed)
		}
		if o, err := DecodeOp(data); err == nil {
			again, err := DecodeOp(o.Encode())
			require.NoError(t, err)
			require.Equal(t, o, again)
		} else {
			require.ErrorIs(t, err, ErrMalformed)
		}
	})
}
