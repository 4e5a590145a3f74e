package rpc

// The messages: which there are, and what their bodies are.

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
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
		return violation("the first frame is not of this protocol; is there a peer of a raft log at that address?")
	case frame[len(magic)] != version:
		return violation("this side speaks version %d and the other version %d: use programs that agree", version, frame[len(magic)])
	}
	return nil
}

// next takes the next message off a frame; its body is a part of the frame.
func (d *decoder) next() message {
	m := message{kind: d.byte("kind of message"), call: d.uint("number of a call", 1<<62)}
	m.body = d.bytes("body of a message", maxFrame)
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
	d := decoder{b: body}
	copy(id[:], d.raw("request ID", uint64(len(id))))
	if len(d.b) > MaxData {
		d.fail("data of an update")
	}
	return id, d.b, d.err
}

func appendChangePeers(b []byte, id requestid.ID, voters []api.Peer) []byte {
	return appendPeers(append(b, id[:]...), voters)
}

func decodeChangePeers(body []byte) (id requestid.ID, voters []api.Peer, err error) {
	d := decoder{b: body}
	copy(id[:], d.raw("request ID", uint64(len(id))))
	voters = d.peers()
	return id, voters, d.end()
}

// grant is what a server may send more.
type grant struct{ bytes, messages uint64 }

func appendGrant(b []byte, g grant) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, g.bytes), g.messages)
}

func decodeGrant(body []byte) (grant, error) {
	d := decoder{b: body}
	g := d.grant()
	return g, d.end()
}

func (d *decoder) grant() grant {
	return grant{d.uint("grant of bytes", maxGrant), d.uint("grant of messages", maxGrant)}
}

func decodeEntries(body []byte) (from uint64, g grant, err error) {
	d := decoder{b: body}
	from = d.uint("index", 1<<64-1)
	g = d.grant()
	return from, g, d.end()
}

func decodeIndex(body []byte) (uint64, error) {
	d := decoder{b: body}
	index := d.uint("index", 1<<64-1)
	return index, d.end()
}

// checkMembership refuses what the other side would not read.
func checkMembership(m api.Membership) error {
	for _, peers := range [][]api.Peer{m.Voters, m.Outgoing, m.Learners} {
		if err := checkPeers(peers); err != nil {
			return err
		}
	}
	if len(m.Removed) > maxRemoved {
		return fmt.Errorf("%w: %d removed IDs, the limit is %d", api.ErrTooLarge, len(m.Removed), maxRemoved)
	}
	size := 0
	for _, id := range m.Removed {
		size += len(id)
		if len(id) > maxString || size > MaxData/2 {
			return fmt.Errorf("%w: the removed IDs are too long", api.ErrTooLarge)
		}
	}
	return nil
}

func appendMembership(b []byte, m api.Membership) []byte {
	b = binary.AppendUvarint(b, m.Index)
	b = appendPeers(appendPeers(appendPeers(b, m.Voters), m.Outgoing), m.Learners)
	b = binary.AppendUvarint(b, uint64(len(m.Removed)))
	for _, id := range m.Removed {
		b = appendString(b, id)
	}
	return b
}

func decodeMembership(body []byte) (api.Membership, error) {
	d := decoder{b: body}
	m := api.Membership{Index: d.uint("index", 1<<64-1)}
	m.Voters, m.Outgoing, m.Learners = d.peers(), d.peers(), d.peers()
	if n := d.count("number of removed IDs", maxRemoved, 1); n > 0 {
		m.Removed = make([]string, n)
		for i := range m.Removed {
			m.Removed[i] = d.string("removed ID", maxString)
		}
	}
	return m, d.end()
}

// decodeNames reads the names that requests about elections consist of.
func decodeNames(body []byte, count int) ([]string, error) {
	d := decoder{b: body}
	names := make([]string, count)
	for i := range names {
		names[i] = d.string("name", maxName)
	}
	return names, d.end()
}

func appendElection(b []byte, e api.Election) []byte {
	b = binary.AppendUvarint(appendBool(b, e.Ended), uint64(len(e.Candidates)))
	for _, c := range e.Candidates {
		b = binary.AppendUvarint(appendString(appendString(appendString(b, c.ID), c.Name), c.Value), c.Token)
	}
	return b
}

func decodeElection(body []byte) (api.Election, error) {
	d := decoder{b: body}
	e := api.Election{Ended: d.bool("end of an election")}
	if n := d.count("number of candidates", maxResult, 4); n > 0 {
		e.Candidates = make([]api.Candidate, n)
	}
	for i := range e.Candidates {
		e.Candidates[i] = api.Candidate{
			ID: d.string("ID of a candidate", maxName), Name: d.string("name of a candidate", maxString),
			Value: d.string("value of a candidate", maxString), Token: d.uint("token", 1<<64-1),
		}
	}
	return e, d.end()
}

func appendInfo(b []byte, i api.Info) []byte {
	b = appendPeer(b, i.Peer)
	b = appendString(appendString(b, cut(i.Cluster, maxString)), cut(i.Role, maxString))
	b = binary.AppendVarint(appendPeer(b, i.Leader), int64(i.Lease))
	for _, n := range []uint64{i.Term, i.FirstIndex, i.LastApplied, i.CommitIndex, i.LastIndex, i.PruneIndex, i.SnapshotIndex} {
		b = binary.AppendUvarint(b, n)
	}
	b = binary.AppendVarint(binary.AppendVarint(b, i.SnapshotSize), int64(i.RequestIDs))
	return appendString(b, cut(i.Fault, maxText))
}

func decodeInfo(body []byte) (api.Info, error) {
	d := decoder{b: body}
	i := api.Info{Peer: d.peer(), Cluster: d.string("cluster", maxString), Role: d.string("role", maxString), Leader: d.peer()}
	i.Lease = time.Duration(d.int("lease"))
	for _, n := range []*uint64{&i.Term, &i.FirstIndex, &i.LastApplied, &i.CommitIndex, &i.LastIndex, &i.PruneIndex, &i.SnapshotIndex} {
		*n = d.uint("number", 1<<64-1)
	}
	i.SnapshotSize, i.RequestIDs = d.int("snapshot's size"), int(d.int("number of request IDs"))
	i.Fault = d.string("fault", maxText)
	return i, d.end()
}

func appendEntry(b []byte, e *api.Entry) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, e.Index), e.Term)
	b = appendTime(append(append(b, byte(e.Kind)), e.ID[:]...), e.Time)
	return append(appendBool(b, e.Skipped), e.Data...)
}

// decodeEntry copies the data.
func decodeEntry(body []byte) (*api.Entry, error) {
	d := decoder{b: body}
	e := &api.Entry{Index: d.uint("index", 1<<64-1), Term: d.uint("term", 1<<64-1), Kind: api.Kind(d.byte("kind of entry"))}
	copy(e.ID[:], d.raw("request ID", uint64(len(e.ID))))
	e.Time = d.time()
	e.Skipped = d.bool("mark of a skipped entry")
	if len(d.b) > MaxData {
		d.fail("data of an entry")
	}
	if len(d.b) > 0 {
		e.Data = append(make([]byte, 0, len(d.b)), d.b...)
	}
	return e, d.err
}

func appendPulse(b []byte, p *api.Progress) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, p.Commit), p.Term)
	return appendBool(appendPeer(b, p.Leader), p.Fresh)
}

func decodePulse(body []byte) (*api.Progress, error) {
	d := decoder{b: body}
	p := &api.Progress{Commit: d.uint("index", 1<<64-1), Term: d.uint("term", 1<<64-1), Leader: d.peer(), Fresh: d.bool("freshness")}
	return p, d.end()
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
	d := decoder{b: body}
	h := snapshotHeader{index: d.uint("index", 1<<64-1), term: d.uint("term", 1<<64-1)}
	h.size = int64(d.uint("snapshot's size", 1<<63-1))
	return h, d.end()
}

func cut(s string, limit int) string { return s[:min(len(s), limit)] }
