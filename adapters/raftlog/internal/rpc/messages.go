package rpc

// The messages: which there are, and what their bodies are.

import (
	"encoding/binary"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

const (
	magic   = "zkrl"
	version = 1
)

// What a message is. The first ones are the caller's, the others the server's.
const (
	msgPropose     = 1 // request ID, data
	msgChangePeers = 2 // request ID, peers
	msgMembership  = 3
	msgInfo        = 4
	msgEntries     = 5 // index to begin with, grant
	msgSnapshot    = 6 // grant
	msgCancel      = 7 // nobody waits for the call any more
	msgGrant       = 8 // more bytes and messages for a stream
	msgPing        = 9

	msgElection    = 10 // name of an election
	msgAskToResign = 11 // name of an election, ID of a candidate

	msgResult         = 32 // of a call that is no stream
	msgError          = 33
	msgDone           = 34 // a stream has ended as it should
	msgEntry          = 35
	msgPulse          = 36
	msgSnapshotHeader = 37
	msgChunk          = 38
	msgSnapshotEnd    = 39
	msgPong           = 40
)

type message struct {
	kind byte
	call uint64
	body []byte
}

// hello is the first frame.
func hello() []byte { return append([]byte(magic), version) }

func checkHello(frame []byte) error {
	switch {
	case len(frame) != len(magic)+1 || string(frame[:len(magic)]) != magic:
		return wire.Violation("the first frame is not of this protocol; is there a peer of a raft log at that address?")
	case frame[len(magic)] != version:
		return wire.Violation("this side speaks version %d and the other version %d: use programs that agree", version, frame[len(magic)])
	}
	return nil
}

// next takes the next message off a frame; its body is a part of the frame.
func next(d *wire.Decoder) message {
	m := message{kind: d.Byte("kind of message"), call: d.Uint("number of a call", 1<<62)}
	m.body = d.Raw("body of a message", d.Uint("length of a message", maxFrame))
	return m
}

// appendMessage appends a message whose body's length is not known before; body appends it.
func appendMessage(b []byte, kind byte, call uint64, body func([]byte) []byte) []byte {
	b = binary.AppendUvarint(append(b, kind), call)
	// Most bodies are shorter than 128 bytes: a length of one byte, or else moved up.
	at := len(b)
	b = append(b, 0)
	if body != nil {
		b = body(b)
	}
	n := len(b) - at - 1
	if n < 0x80 {
		b[at] = byte(n)
		return b
	}
	var length [binary.MaxVarintLen64]byte
	k := binary.PutUvarint(length[:], uint64(n))
	b = append(b, length[1:k]...) // as many bytes more
	copy(b[at+k:], b[at+1:at+1+n])
	copy(b[at:], length[:k])
	return b
}

func appendPropose(b []byte, call uint64, id requestid.ID, data []byte) []byte {
	b = binary.AppendUvarint(append(b, msgPropose), call)
	b = binary.AppendUvarint(b, uint64(len(id)+len(data)))
	return append(append(b, id[:]...), data...)
}

func decodePropose(body []byte) (id requestid.ID, data []byte, err error) {
	d := wire.Decoder{B: body}
	copy(id[:], d.Raw("request ID", uint64(len(id))))
	if len(d.B) > wire.MaxData {
		d.Fail("data of an update")
	}
	return id, d.B, d.Err
}

func appendChangePeers(b []byte, id requestid.ID, voters []api.Peer) []byte {
	return wire.AppendPeers(append(b, id[:]...), voters)
}

func decodeChangePeers(body []byte) (id requestid.ID, voters []api.Peer, err error) {
	d := wire.Decoder{B: body}
	copy(id[:], d.Raw("request ID", uint64(len(id))))
	voters = d.Peers()
	return id, voters, d.End()
}

// grant is what a server may send more.
type grant struct{ bytes, messages uint64 }

func appendGrant(b []byte, g grant) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, g.bytes), g.messages)
}

func decodeGrant(body []byte) (grant, error) {
	d := wire.Decoder{B: body}
	g := nextGrant(&d)
	return g, d.End()
}

func nextGrant(d *wire.Decoder) grant {
	return grant{d.Uint("grant of bytes", maxGrant), d.Uint("grant of messages", maxGrant)}
}

func decodeEntries(body []byte) (from uint64, g grant, err error) {
	d := wire.Decoder{B: body}
	from = d.Uint("index", 1<<64-1)
	g = nextGrant(&d)
	return from, g, d.End()
}

func decodeIndex(body []byte) (uint64, error) {
	d := wire.Decoder{B: body}
	index := d.Uint("index", 1<<64-1)
	return index, d.End()
}

func decodeMembership(body []byte) (api.Membership, error) {
	d := wire.Decoder{B: body}
	m := d.Membership()
	return m, d.End()
}

// decodeNames reads the names that requests about elections consist of.
func decodeNames(body []byte, count int) ([]string, error) {
	d := wire.Decoder{B: body}
	names := make([]string, count)
	for i := range names {
		names[i] = d.String("name", maxName)
	}
	return names, d.End()
}

func appendElection(b []byte, e api.Election) []byte {
	b = binary.AppendUvarint(wire.AppendBool(b, e.Ended), uint64(len(e.Candidates)))
	for _, c := range e.Candidates {
		b = binary.AppendUvarint(wire.AppendString(wire.AppendString(wire.AppendString(b, c.ID), c.Name), c.Value), c.Token)
	}
	return b
}

func decodeElection(body []byte) (api.Election, error) {
	d := wire.Decoder{B: body}
	e := api.Election{Ended: d.Bool("end of an election")}
	if n := d.Count("number of candidates", maxResult, 4); n > 0 {
		e.Candidates = make([]api.Candidate, n)
	}
	for i := range e.Candidates {
		e.Candidates[i] = api.Candidate{
			ID: d.String("ID of a candidate", maxName), Name: d.String("name of a candidate", wire.MaxString),
			Value: d.String("value of a candidate", wire.MaxString), Token: d.Uint("token", 1<<64-1),
		}
	}
	return e, d.End()
}

func appendInfo(b []byte, i api.Info) []byte {
	b = wire.AppendPeer(b, i.Peer)
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
		*n = d.Uint("number", 1<<64-1)
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

// decodeEntry copies the data.
func decodeEntry(body []byte) (*api.Entry, error) {
	d := wire.Decoder{B: body}
	e := &api.Entry{Index: d.Uint("index", 1<<64-1), Term: d.Uint("term", 1<<64-1), Kind: api.Kind(d.Byte("kind of entry"))}
	copy(e.ID[:], d.Raw("request ID", uint64(len(e.ID))))
	e.Time = d.Time()
	e.Skipped = d.Bool("mark of a skipped entry")
	if len(d.B) > wire.MaxData {
		d.Fail("data of an entry")
	}
	if len(d.B) > 0 {
		e.Data = append(make([]byte, 0, len(d.B)), d.B...)
	}
	return e, d.Err
}

func appendPulse(b []byte, p *api.Progress) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, p.Commit), p.Term)
	return wire.AppendBool(wire.AppendPeer(b, p.Leader), p.Fresh)
}

func decodePulse(body []byte) (*api.Progress, error) {
	d := wire.Decoder{B: body}
	p := &api.Progress{Commit: d.Uint("index", 1<<64-1), Term: d.Uint("term", 1<<64-1), Leader: d.Peer(), Fresh: d.Bool("freshness")}
	return p, d.End()
}

// snapshotHeader is what is known of a snapshot before its data.
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
	h := snapshotHeader{index: d.Uint("index", 1<<64-1), term: d.Uint("term", 1<<64-1)}
	h.size = int64(d.Uint("snapshot's size", 1<<63-1))
	return h, d.End()
}
