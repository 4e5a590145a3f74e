package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

var (
	aPeer       = api.Peer{ID: "a", Addr: "127.0.0.1:1"}
	bPeer       = api.Peer{ID: "b", Addr: "127.0.0.1:2"}
	aMembership = api.Membership{Index: 7, Voters: []api.Peer{aPeer, bPeer}, Outgoing: []api.Peer{aPeer}, Learners: []api.Peer{bPeer}, Removed: []string{"x", "y"}}
	anInfo      = api.Info{
		Peer: aPeer, Cluster: "c", Role: "leader", Leader: bPeer, Lease: -time.Second, Term: 1, FirstIndex: 2, LastApplied: 3,
		CommitIndex: 4, LastIndex: 5, PruneIndex: 6, SnapshotIndex: math.MaxUint64, SnapshotSize: 8, RequestIDs: 9, Fault: "disk",
	}
	anEntry    = &api.Entry{Index: 3, Term: 2, Kind: api.KindControl, ID: api.NewRequestID(), Time: time.Unix(1763000000, 123456789).UTC(), Data: []byte("data"), Skipped: true}
	anElection = api.Election{Candidates: []api.Candidate{{ID: "a/1", Name: "n", Value: "v", Token: math.MaxUint64}, {ID: "b/2"}}}
	aProgress  = &api.Progress{Commit: 3, Term: 2, Leader: aPeer, Fresh: true}
	aHeader    = snapshotHeader{3, 2, math.MaxInt64}
)

// roundTrip is an encoded sample of a message, and a function that decodes a message and encodes it
// again.
type roundTrip struct {
	sample []byte
	again  func(body []byte) ([]byte, error)
}

var decoders = map[string]roundTrip{
	"propose": {append(bytes.Clone(anEntry.ID[:]), "data"...), func(b []byte) ([]byte, error) {
		id, data, err := decodePropose(b)
		return append(id[:], data...), err
	}},
	"change": {wire.AppendPeers(anEntry.ID[:], aMembership.Voters), func(b []byte) ([]byte, error) {
		id, voters, err := decodeChangePeers(b)
		return wire.AppendPeers(id[:], voters), err
	}},
	"names": {wire.AppendString(wire.AppendString(nil, "jobs/report"), "a/1"), func(b []byte) ([]byte, error) {
		names, err := decodeNames(b, 2)
		return wire.AppendString(wire.AppendString(nil, names[0]), names[1]), err
	}},
	"election": {encodeElection(anElection), func(b []byte) ([]byte, error) {
		e, err := decodeElection(b)
		return encodeElection(e), err
	}},
	"index": {encodeIndex(math.MaxUint64), func(b []byte) ([]byte, error) {
		i, err := decodeIndex(b)
		return encodeIndex(i), err
	}},
	"membership": {wire.AppendMembership(nil, aMembership), func(b []byte) ([]byte, error) {
		m, err := decodeMembership(b)
		return wire.AppendMembership(nil, m), err
	}},
	"info": {encodeInfo(anInfo), func(b []byte) ([]byte, error) {
		i, err := decodeInfo(b)
		return encodeInfo(i), err
	}},
	"error": {wire.AppendError(nil, &api.NotLeaderError{Leader: aPeer}), func(b []byte) ([]byte, error) {
		d := wire.Decoder{B: b}
		remote := d.Error()
		if err := d.End(); err != nil {
			return nil, err
		}
		return wire.AppendError(nil, remote), nil
	}},
	"entry": {appendEntry(nil, anEntry), func(b []byte) ([]byte, error) {
		e, err := decodeEntry(b)
		return appendEntry(nil, e), err
	}},
	"progress": {appendProgress(nil, aProgress), func(b []byte) ([]byte, error) {
		p, err := decodeProgress(b)
		return appendProgress(nil, p), err
	}},
	"snapshot": {appendSnapshotHeader(nil, aHeader), func(b []byte) ([]byte, error) {
		h, err := decodeSnapshotHeader(b)
		return appendSnapshotHeader(nil, h), err
	}},
	"message": {append(newMessage(msgPropose, 5, 0), make([]byte, 300)...), func(b []byte) ([]byte, error) {
		kind, number, body, err := decodeMessage(b)
		return append(newMessage(kind, number, 0), body...), err
	}},
}

// TestDecoders_InvertEncoders checks that every decoder is the inverse of its encoder, and rejects
// incomplete messages and trailing bytes.
func TestDecoders_InvertEncoders(t *testing.T) {
	for name, d := range decoders {
		t.Run(name, func(t *testing.T) {
			b, err := d.again(d.sample)
			require.NoError(t, err)
			require.Equal(t, d.sample, b)
			for n := range d.sample {
				if b, err := d.again(d.sample[:n]); err == nil { // a message that ends with raw bytes may end earlier
					require.Equal(t, d.sample[:n], b)
				} else {
					require.ErrorIs(t, err, wire.ErrProtocol)
				}
			}
			if name == "propose" || name == "entry" || name == "message" {
				return
			}
			_, err = d.again(append(bytes.Clone(d.sample), 0))
			require.ErrorIs(t, err, wire.ErrProtocol)
		})
	}
	e, err := decodeEntry(appendEntry(nil, anEntry))
	require.NoError(t, err)
	require.Equal(t, anEntry, e)
	e, err = decodeEntry(appendEntry(nil, &api.Entry{Kind: api.KindCheckpoint}))
	require.NoError(t, err)
	require.Equal(t, &api.Entry{Kind: api.KindCheckpoint}, e)
	m, err := decodeMembership(wire.AppendMembership(nil, aMembership))
	require.NoError(t, err)
	require.Equal(t, aMembership, m)
	i, err := decodeInfo(encodeInfo(anInfo))
	require.NoError(t, err)
	require.Equal(t, anInfo, i)
}

// TestDecode_RejectsTooLargeMessages checks that a decoder rejects a message that exceeds a limit, and
// does not allocate memory for elements that the message announces but does not contain.
func TestDecode_RejectsTooLargeMessages(t *testing.T) {
	huge := binary.AppendUvarint(nil, 1<<40)
	many := binary.AppendUvarint(nil, wire.MaxPeers+1)
	long := binary.AppendUvarint(nil, wire.MaxString+1)
	for name, bad := range map[string]struct {
		decoder string
		body    []byte
	}{
		"peers claimed":       {"change", append(make([]byte, 16), huge...)},
		"too many peers":      {"change", append(append(make([]byte, 16), many...), make([]byte, 2*wire.MaxPeers+2)...)},
		"long name":           {"change", append(append(append(make([]byte, 16), 1), long...), make([]byte, wire.MaxString+2)...)},
		"peers without bytes": {"membership", []byte{1, 0xff, 7}},
		"removed claimed":     {"membership", append([]byte{1, 0, 0, 0}, huge...)},
		"removed too many":    {"membership", append(binary.AppendUvarint([]byte{1, 0, 0, 0}, wire.MaxRemoved+1), make([]byte, wire.MaxRemoved+1)...)},
		"removed not there":   {"membership", append(binary.AppendUvarint([]byte{1, 0, 0, 0}, wire.MaxRemoved), 0)},
		"error's text":        {"error", append(append([]byte{0, 0, 0}, binary.AppendUvarint(nil, wire.MaxText+1)...), make([]byte, wire.MaxText+1)...)},
		"unknown error":       {"error", append(binary.AppendUvarint(nil, 1<<17), 0, 0, 0)},
		"large update":        {"propose", make([]byte, 16+wire.MaxData+1)},
		"large entry":         {"entry", append(appendEntry(nil, &api.Entry{}), make([]byte, wire.MaxData+1)...)},
		"size of snapshot":    {"snapshot", binary.AppendUvarint([]byte{1, 1}, 1<<63)},
		"boolean":             {"progress", []byte{0, 0, 0, 0, 2}},
		"endless integer":     {"index", bytes.Repeat([]byte{0xff}, 11)},
		"time":                {"entry", append(append([]byte{1, 1, 0}, make([]byte, 16)...), append(binary.AppendUvarint([]byte{0}, 1e9+1), 0)...)},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := decoders[bad.decoder].again(bad.body)
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, wire.ErrProtocol)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(200_000))
		})
	}
	_, err := new(Caller).ChangePeers(t.Context(), api.NewRequestID(), make([]api.Peer, wire.MaxPeers+1))
	require.ErrorIs(t, err, api.ErrInvalid)
	_, err = new(Caller).ChangePeers(t.Context(), api.NewRequestID(), []api.Peer{{ID: strings.Repeat("x", wire.MaxString+1)}})
	require.ErrorIs(t, err, api.ErrInvalid)
	_, err = new(Caller).Propose(t.Context(), api.NewRequestID(), make([]byte, wire.MaxData+1))
	require.ErrorIs(t, err, api.ErrTooLarge)
	require.ErrorIs(t, wire.CheckMembership(api.Membership{Removed: make([]string, wire.MaxRemoved+1)}), api.ErrTooLarge)
}

func fuzzDecoder(f *testing.F, name string) {
	d := decoders[name]
	f.Add(d.sample)
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := d.again(body)
		if err != nil {
			require.ErrorIs(t, err, wire.ErrProtocol)
			return
		}
		// Compare the decoded messages, because an integer can have several encodings.
		again, err := d.again(b)
		require.NoError(t, err)
		require.Equal(t, b, again)
		require.LessOrEqual(t, len(b), len(body)+1)
	})
}

func FuzzPropose(f *testing.F)    { fuzzDecoder(f, "propose") }
func FuzzChange(f *testing.F)     { fuzzDecoder(f, "change") }
func FuzzIndex(f *testing.F)      { fuzzDecoder(f, "index") }
func FuzzMembership(f *testing.F) { fuzzDecoder(f, "membership") }
func FuzzInfo(f *testing.F)       { fuzzDecoder(f, "info") }
func FuzzElection(f *testing.F)   { fuzzDecoder(f, "election") }
func FuzzEntry(f *testing.F)      { fuzzDecoder(f, "entry") }
func FuzzProgress(f *testing.F)   { fuzzDecoder(f, "progress") }
func FuzzSnapshot(f *testing.F)   { fuzzDecoder(f, "snapshot") }
func FuzzMessage(f *testing.F)    { fuzzDecoder(f, "message") }
func FuzzError(f *testing.F)      { fuzzDecoder(f, "error") }

// framesConn is a connection from which given frames can be read, and which discards everything that is
// written.
type framesConn struct {
	Conn
	frames [][]byte
}

func (c *framesConn) ReadFrame() ([]byte, error) {
	if len(c.frames) == 0 {
		return nil, io.EOF
	}
	frame := c.frames[0]
	c.frames = c.frames[1:]
	return frame, nil
}

func (c *framesConn) Close() error { return nil }

// FuzzEvents reads a stream from a server that sends arbitrary frames. Reading must end with an error.
func FuzzEvents(f *testing.F) {
	f.Add(append([]byte{msgEntry}, appendEntry(nil, anEntry)...), []byte{msgError})
	f.Add(append([]byte{msgProgress}, appendProgress(nil, aProgress)...), []byte{})
	f.Add(append([]byte{msgSnapshotHeader}, appendSnapshotHeader(nil, snapshotHeader{1, 1, 3})...), append([]byte{msgChunk}, "abc"...))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		s := &Stream{conn: &framesConn{frames: [][]byte{first, second}}}
		s.ctx, s.cancel = context.WithCancelCause(t.Context())
		for n := 0; ; n++ {
			event, err := s.Next()
			if err != nil {
				return
			}
			require.Less(t, n, 2)
			if event.Snapshot != nil {
				data, err := io.ReadAll(event.Snapshot.Data)
				if err == nil {
					require.Len(t, data, int(event.Snapshot.Size))
				}
				require.NoError(t, event.Snapshot.Data.Close())
			}
		}
	})
}

// FuzzReplies passes an arbitrary frame of a server to a client with pending calls. Either the connection
// must end, or at most one call may receive a reply.
func FuzzReplies(f *testing.F) {
	f.Add(newMessage(msgResult, 1, 0))
	f.Add(append(newMessage(msgError, 2, 0), wire.AppendError(nil, &api.NotLeaderError{})...))
	f.Fuzz(func(t *testing.T, frame []byte) {
		c := &Caller{calls: map[uint64]*call{}, last: 3}
		replies := make(chan reply, 2)
		for number, kind := range map[uint64]byte{1: msgPropose, 2: msgInfo} {
			c.calls[number] = &call{request: outgoingMessage{frame: []byte{kind}}, number: number, reply: replies}
		}
		if err := c.dispatchReply(frame); err != nil {
			require.ErrorIs(t, err, wire.ErrProtocol)
		}
		require.LessOrEqual(t, len(replies), 1)
		require.Equal(t, 2, len(replies)+len(c.calls))
	})
}
