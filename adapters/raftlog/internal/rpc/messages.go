package rpc

import (
	"encoding/binary"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// These are the kinds of messages on a connection. The comments list the contents of their bodies.
const (
	// These are the kinds of calls.
	msgPropose       = 1 // the body contains the request ID and the data
	msgChangePeers   = 2 // the body contains the request ID and the peers
	msgMembership    = 3
	msgInfo          = 4
	msgElection      = 5 // the body contains the name of an election
	msgRequestResign = 6 // the body contains the name of an election and the ID of a candidate
	msgCancel        = 7 // cancels the call with the number of the message

	// These are the kinds of replies to calls. A stream can also end with msgError.
	msgResult = 16
	msgError  = 17

	// These are the kinds of requests for streams.
	msgEntries  = 32 // the body contains the first index
	msgSnapshot = 33

	// These are the kinds of the messages of streams.
	msgEntry          = 48
	msgProgress       = 49
	msgSnapshotHeader = 50 // followed by msgChunk until all bytes have been sent
	msgChunk          = 51
)

const (
	maxName   = 2 << 10          // the maximum length of the name of an election, or of the ID of a candidate
	maxResult = wire.MaxData / 2 // the maximum size of an encoded list of candidates
	maxChunk  = 1 << 20          // the maximum size of one part of a snapshot
)

// headerSize is the size of the kind and of the number of a message.
const headerSize = 1 + 8

// newMessage returns the frame of a call or a reply with an empty body. The frame has capacity for a
// body of the given size.
func newMessage(kind byte, number uint64, size int) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, headerSize+size), kind), number)
}

// setNumber sets the number of the call in a frame.
func setNumber(frame []byte, number uint64) { binary.BigEndian.PutUint64(frame[1:], number) }

// decodeMessage splits the frame of a call or a reply. The body shares the memory of the frame.
func decodeMessage(frame []byte) (kind byte, number uint64, body []byte, err error) {
	if len(frame) < headerSize {
		return 0, 0, nil, wire.Violation("a message of %d bytes is shorter than its header of %d", len(frame), headerSize)
	}
	return frame[0], binary.BigEndian.Uint64(frame[1:]), frame[headerSize:], nil
}

// decodePropose decodes the body of a proposal. data shares the memory of the body.
func decodePropose(body []byte) (id api.RequestID, data []byte, err error) {
	d := wire.Decoder{B: body}
	copy(id[:], d.Raw("request ID", uint64(len(id))))
	data = d.Data("data of an update")
	return id, data, d.Err
}

func decodeChangePeers(body []byte) (id api.RequestID, voters []api.Peer, err error) {
	d := wire.Decoder{B: body}
	copy(id[:], d.Raw("request ID", uint64(len(id))))
	voters = d.Peers()
	return id, voters, d.End()
}

func encodeIndex(index uint64) []byte { return binary.AppendUvarint(nil, index) }

func decodeIndex(body []byte) (uint64, error) {
	d := wire.Decoder{B: body}
	index := d.Uint64("index")
	return index, d.End()
}

func decodeMembership(body []byte) (api.Membership, error) {
	d := wire.Decoder{B: body}
	m := d.Membership()
	return m, d.End()
}

func decodeEmpty(body []byte) (struct{}, error) {
	d := wire.Decoder{B: body}
	return struct{}{}, d.End()
}

// decodeNames decodes a body that consists of the given number of names.
func decodeNames(body []byte, count int) ([]string, error) {
	d := wire.Decoder{B: body}
	names := make([]string, count)
	for i := range names {
		names[i] = d.String("name", maxName)
	}
	return names, d.End()
}

func encodeElection(e api.Election) []byte {
	b := binary.AppendUvarint(wire.AppendBool(nil, e.Ended), uint64(len(e.Candidates)))
	for _, c := range e.Candidates {
		b = binary.AppendUvarint(wire.AppendString(wire.AppendString(wire.AppendString(b, c.ID), c.Name), c.Value), c.Token)
	}
	return b
}

func decodeElection(body []byte) (api.Election, error) {
	d := wire.Decoder{B: body}
	e := api.Election{Ended: d.Bool("state of an election")}
	if n := d.Count("number of candidates", maxResult, 4); n > 0 {
		e.Candidates = make([]api.Candidate, n)
	}
	for i := range e.Candidates {
		e.Candidates[i] = api.Candidate{
			ID: d.String("ID of a candidate", maxName), Name: d.String("name of a candidate", wire.MaxString),
			Value: d.String("value of a candidate", wire.MaxString), Token: d.Uint64("token"),
		}
	}
	return e, d.End()
}

func encodeInfo(i api.Info) []byte {
	b := wire.AppendPeer(nil, i.Peer)
	b = wire.AppendString(wire.AppendString(b, wire.Cut(i.Cluster, wire.MaxString)), wire.Cut(i.Role, wire.MaxString))
	b = binary.AppendVarint(wire.AppendPeer(b, i.Leader), int64(i.Lease))
	for _, n := range []uint64{i.Term, i.FirstIndex, i.LastApplied, i.CommitIndex, i.LastIndex, i.PruneIndex, i.SnapshotIndex} {
		b = binary.AppendUvarint(b, n)
	}
	b = binary.AppendVarint(binary.AppendVarint(b, i.SnapshotSize), int64(i.RequestIDs))
	return wire.AppendString(b, wire.Cut(i.Fault, wire.MaxText))
}

func decodeInfo(body []byte) (api.Info, error) {
	d := wire.Decoder{B: body}
	i := api.Info{Peer: d.Peer(), Cluster: d.String("cluster", wire.MaxString), Role: d.String("role", wire.MaxString), Leader: d.Peer()}
	i.Lease = time.Duration(d.Int("lease"))
	for _, n := range []*uint64{&i.Term, &i.FirstIndex, &i.LastApplied, &i.CommitIndex, &i.LastIndex, &i.PruneIndex, &i.SnapshotIndex} {
		*n = d.Uint64("number")
	}
	i.SnapshotSize, i.RequestIDs = d.Int("snapshot's size"), int(d.Int("number of request IDs"))
	i.Fault = d.String("fault", wire.MaxText)
	return i, d.End()
}

func appendEntry(b []byte, e *api.Entry) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, e.Index), e.Term)
	b = wire.AppendTime(append(append(b, byte(e.Kind)), e.ID[:]...), e.Time)
	return append(wire.AppendBool(b, e.Skipped), e.Data...)
}

// decodeEntry decodes an entry. The data of the entry shares the memory of the body.
func decodeEntry(body []byte) (*api.Entry, error) {
	d := wire.Decoder{B: body}
	e := &api.Entry{Index: d.Uint64("index"), Term: d.Uint64("term"), Kind: api.Kind(d.Byte("kind of entry"))}
	copy(e.ID[:], d.Raw("request ID", uint64(len(e.ID))))
	e.Time = d.Time()
	e.Skipped = d.Bool("whether an entry is skipped")
	if len(d.B) > 0 {
		e.Data = d.Data("data of an entry")
	}
	return e, d.Err
}

func appendProgress(b []byte, p *api.Progress) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, p.Commit), p.Term)
	return wire.AppendBool(wire.AppendPeer(b, p.Leader), p.Fresh)
}

func decodeProgress(body []byte) (*api.Progress, error) {
	d := wire.Decoder{B: body}
	p := &api.Progress{Commit: d.Uint64("index"), Term: d.Uint64("term"), Leader: d.Peer(), Fresh: d.Bool("freshness")}
	return p, d.End()
}

// snapshotHeader describes the snapshot whose parts follow in a stream.
type snapshotHeader struct {
	index, term uint64
	size        int64
}

func appendSnapshotHeader(b []byte, h snapshotHeader) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, h.index), h.term)
	return binary.AppendUvarint(b, uint64(h.size))
}

func decodeSnapshotHeader(body []byte) (snapshotHeader, error) {
	d := wire.Decoder{B: body}
	h := snapshotHeader{index: d.Uint64("index"), term: d.Uint64("term")}
	h.size = int64(d.Uint("size of a snapshot", 1<<63-1))
	return h, d.End()
}
