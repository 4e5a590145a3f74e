package replica

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// Op is an operation on elections or on the log, which a Control entry contains.
type Op struct {
	Do        Operation     `json:"do"`
	Election  string        `json:"election,omitempty"`
	Candidate string        `json:"candidate,omitempty"` // the ID of a candidate, which no other candidate ever has
	Name      string        `json:"name,omitempty"`
	Peer      uint64        `json:"peer,omitempty"`
	Through   uint64        `json:"through,omitempty"`
	Window    time.Duration `json:"window,omitempty"`
	Addr      string        `json:"addr,omitempty"`
}

// Operation is the kind of an Op. The log stores the numbers of the operations, so new ones must be appended.
type Operation byte

// These are the operations on elections and on the log.
const (
	// Join appends Candidate, which belongs to Peer, to the queue of Election.
	Join Operation = iota + 1
	// Leave removes Candidate from the queue of Election. Through is the token of the leadership that
	// the candidate has ended, or 0 if the candidate has not led.
	Leave
	// End ends Election: all candidates are removed, and no candidate can join. Through is the last
	// index that the requester had seen. If a later entry has restarted Election, End is ignored,
	// because the election that the requester has seen had already ended.
	End
	// Restart makes an ended Election accept candidates again. Through is the last index that the
	// requester had seen. If a later entry has ended Election, Restart is ignored.
	Restart
	// Forget removes the elections that were ended by an entry with an index of at most Through. After
	// Forget, a request to End an election is rejected if its Through is less than the Through of
	// Forget, because the request could concern an election that was removed and restarted.
	Forget
	// Expire removes those candidates of Peer from all queues that have joined up to index Through.
	Expire
	// Transfer announces that the leader of this term will transfer the leadership of the log before
	// its lease has expired.
	Transfer
	// Settled confirms that a majority of the new voters has stored the entry at index Through, which
	// has completed a change of the voters. A peer that has the Settled entry also has the entry at
	// Through.
	Settled
	// Move changes the address of Peer to Addr.
	Move
	// Window sets the deduplication window: the time for which peers remember request IDs.
	Window
)

var operations = [...]string{
	Join: "join", Leave: "leave", End: "end", Restart: "restart", Forget: "forget", Expire: "expire",
	Transfer: "transfer", Settled: "settled", Move: "move", Window: "window",
}

func (o Operation) String() string { return nameOf(operations[:], byte(o)) }

// MarshalText implements [encoding.TextMarshaler], for [Decoded.Text].
func (o Operation) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// nameOf returns the element of names at the position value, or the number value if there is no such name.
func nameOf(names []string, value byte) string {
	if value == 0 || int(value) >= len(names) {
		return fmt.Sprint(value)
	}
	return names[value]
}

// Encode returns the data of a Control entry with this operation.
func (o Op) Encode() []byte {
	b := []byte{byte(o.Do)}
	for _, s := range []string{o.Election, o.Candidate, o.Name, o.Addr} {
		b = wire.AppendString(b, s)
	}
	b = binary.AppendUvarint(binary.AppendUvarint(b, o.Peer), o.Through)
	return binary.AppendVarint(b, int64(o.Window))
}

// DecodeOp decodes the data that Op.Encode has returned.
func DecodeOp(data []byte) (Op, error) {
	d := wire.Decoder{B: data}
	o := Op{Do: Operation(d.Byte("operation"))}
	if d.Err == nil && (o.Do < Join || o.Do > Window) {
		return o, fmt.Errorf("%w: unknown operation %v: another version of this program has written it", ErrMalformed, o.Do)
	}
	for _, s := range []*string{&o.Election, &o.Candidate, &o.Name, &o.Addr} {
		*s = d.String("text", uint64(len(data)))
	}
	o.Peer, o.Through, o.Window = d.Uint64("peer"), d.Uint64("index"), time.Duration(d.Int("window"))
	if err := d.End(); err != nil {
		return o, fmt.Errorf("%w: operation %v: %w", ErrMalformed, o.Do, err)
	}
	return o, nil
}

// Config is the data of a Config entry, which is one step of a change of the membership.
type Config struct {
	// Phase says which step of the change this is.
	Phase Phase `json:"phase"`
	// Peers are the learner to admit or dismiss, or all new voters.
	Peers []Peer `json:"peers,omitempty"`
}

// Phase is a step of a change of the membership. The log stores the numbers of the phases, so new ones must be
// appended.
type Phase byte

// These are the phases of a change of the membership.
const (
	// Admit makes a peer that is not a member a learner, which receives the log.
	Admit Phase = iota + 1
	// Dismiss removes a learner from the members.
	Dismiss
	// Joint begins joint consensus: from now on, majorities of both the old and the new voters are
	// required.
	Joint
	// Final ends joint consensus: only the new voters remain.
	Final
	// Recover makes a peer the only member of the cluster, after an operator has recovered the cluster
	// from the data of that peer. No leader writes a Config entry with this phase.
	Recover
)

var phases = [...]string{Admit: "admit", Dismiss: "dismiss", Joint: "joint", Final: "final", Recover: "recover"}

func (p Phase) String() string { return nameOf(phases[:], byte(p)) }

// MarshalText implements [encoding.TextMarshaler], for [Decoded.Text].
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Peer is a member of the cluster, with the number by which the engine identifies it.
type Peer struct {
	ID   string `json:"id"`
	Addr string `json:"addr"`
	Raft uint64 `json:"raft"`
}

// Is reports whether p and q are the same peer, possibly with different addresses.
func (p Peer) Is(q Peer) bool { return p.Raft == q.Raft }

// AppendPeers appends the encoding of a list of peers.
func AppendPeers(b []byte, peers []Peer) []byte {
	b = binary.AppendUvarint(b, uint64(len(peers)))
	for _, p := range peers {
		b = binary.AppendUvarint(wire.AppendString(wire.AppendString(b, p.ID), p.Addr), p.Raft)
	}
	return b
}

// DecodePeers decodes a list of peers and removes it from d.
func DecodePeers(d *wire.Decoder) (peers []Peer) {
	limit := uint64(len(d.B))
	for range d.Count("number of peers", limit, 3) {
		peers = append(peers, Peer{d.String("ID of a peer", limit), d.String("address of a peer", limit), d.Uint64("number of a peer")})
	}
	return peers
}

// Encode returns the data of a Config entry with this step.
func (c Config) Encode() []byte { return AppendPeers([]byte{byte(c.Phase)}, c.Peers) }

// DecodeConfig decodes the data that Config.Encode has returned.
func DecodeConfig(data []byte) (Config, error) {
	d := wire.Decoder{B: data}
	c := Config{Phase: Phase(d.Byte("phase"))}
	if d.Err == nil && (c.Phase < Admit || c.Phase > Recover) {
		return c, fmt.Errorf("%w: unknown phase %v: another version of this program has written it", ErrMalformed, c.Phase)
	}
	c.Peers = DecodePeers(&d)
	if err := d.End(); err != nil {
		return c, fmt.Errorf("%w: change of the peers: %w", ErrMalformed, err)
	}
	return c, nil
}

// Text returns the data of d for display: the record of a Control or a Config entry as JSON, and the
// data of any other entry unchanged. If the record cannot be decoded, Text returns the data unchanged.
func (d Decoded) Text() []byte {
	var record any
	var err error
	switch d.Kind {
	case api.KindControl:
		record, err = DecodeOp(d.Data)
	case api.KindConfig:
		record, err = DecodeConfig(d.Data)
	default:
		return d.Data
	}
	text, failed := json.Marshal(record)
	if err != nil || failed != nil {
		return d.Data
	}
	return text
}
