package entry

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// Op is what a Control entry asks for.
type Op struct {
	Do        Operation     `json:"do"`
	Election  string        `json:"election,omitempty"`
	Candidate string        `json:"candidate,omitempty"` // unique for ever
	Name      string        `json:"name,omitempty"`
	Peer      uint64        `json:"peer,omitempty"`
	Through   uint64        `json:"through,omitempty"`
	Window    time.Duration `json:"window,omitempty"`
	Addr      string        `json:"addr,omitempty"`
}

// Operation is the kind of an Op. The values are stored in the log: new ones are appended.
type Operation byte

// The operations.
const (
	// Join puts Candidate, of Peer, at the end of Election's line.
	Join Operation = iota + 1
	// Leave takes Candidate out of Election's line.
	Leave
	// End is the end of Election, for all candidates and newcomers; unless it was begun anew
	// by an entry behind Through, which is how far who asks for it knew the log: what was
	// there then was ended already. 0 is for none such.
	End
	// Restart lets Election begin anew after its end, by an entry that is not behind Through,
	// which is as of End: of a later end who asks does not know.
	Restart
	// Forget removes elections that were ended by an entry with an index of at most Through. After
	// it, a request to End an election is rejected if its Through is less than this one: it could
	// concern an election that was removed and restarted.
	Forget
	// Expire takes out of all lines the candidates of Peer that have joined by index Through.
	Expire
	// Transfer says that the leader of this term is about to have another one elected without
	// waiting for its lease.
	Transfer
	// Settled says that the change of the voters that was complete by the entry with index
	// Through is known, by their disks, to most of the new ones: who has this entry has that.
	Settled
	// Move says that others reach Peer at Addr from now on.
	Move
	// Window sets for how long request IDs are remembered.
	Window
)

var operations = [...]string{
	Join: "join", Leave: "leave", End: "end", Restart: "restart", Forget: "forget", Expire: "expire",
	Transfer: "transfer", Settled: "settled", Move: "move", Window: "window",
}

func (o Operation) String() string { return nameOf(operations[:], byte(o)) }

// MarshalText implements [encoding.TextMarshaler], for [Decoded.Text].
func (o Operation) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// nameOf returns the name of a value that starts at 1.
func nameOf(names []string, value byte) string {
	if value == 0 || int(value) >= len(names) {
		return fmt.Sprint(value)
	}
	return names[value]
}

// Encode returns the data of a Control entry.
func (o Op) Encode() []byte {
	b := []byte{byte(o.Do)}
	for _, s := range []string{o.Election, o.Candidate, o.Name, o.Addr} {
		b = wire.AppendString(b, s)
	}
	b = binary.AppendUvarint(binary.AppendUvarint(b, o.Peer), o.Through)
	return binary.AppendVarint(b, int64(o.Window))
}

// DecodeOp decodes the result of Op.Encode.
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
		return o, fmt.Errorf("%w: %v: %w", ErrMalformed, o.Do, err)
	}
	return o, nil
}

// Membership change, as a Config entry's data.

// Config is the data of a Config entry.
type Config struct {
	// Phase is what the entry does.
	Phase Phase `json:"phase"`
	// Peers are those that it concerns: the new client, or all voters there are to be.
	Peers []Peer `json:"peers,omitempty"`
}

// Phase of a change of the peers. The values are stored in the log: new ones are appended.
type Phase byte

// The phases.
const (
	// Admit: a peer outside the configuration becomes a client, that gets the log.
	Admit Phase = iota + 1
	// Dismiss: a client that is no longer there is left out.
	Dismiss
	// Joint is Cold,new: from now on both need a majority.
	Joint
	// Final is Cnew.
	Final
	// Recover: an operator has made the peer the only one of the cluster, and all others are
	// removed. No leader writes it.
	Recover
)

var phases = [...]string{Admit: "admit", Dismiss: "dismiss", Joint: "joint", Final: "final", Recover: "recover"}

func (p Phase) String() string { return nameOf(phases[:], byte(p)) }

// MarshalText implements [encoding.TextMarshaler], for [Decoded.Text].
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Peer of a configuration, with the number by which the engine knows it.
type Peer struct {
	ID   string `json:"id"`
	Addr string `json:"addr"`
	Raft uint64 `json:"raft"`
}

// Is tells whether two are the same peer, at whatever addresses.
func (p Peer) Is(q Peer) bool { return p.Raft == q.Raft }

// AppendPeers appends a list of peers.
func AppendPeers(b []byte, peers []Peer) []byte {
	b = binary.AppendUvarint(b, uint64(len(peers)))
	for _, p := range peers {
		b = binary.AppendUvarint(wire.AppendString(wire.AppendString(b, p.ID), p.Addr), p.Raft)
	}
	return b
}

// DecodePeers removes a list of peers from d.
func DecodePeers(d *wire.Decoder) (peers []Peer) {
	limit := uint64(len(d.B))
	for range d.Count("number of peers", limit, 3) {
		peers = append(peers, Peer{d.String("ID of a peer", limit), d.String("address of a peer", limit), d.Uint64("number of a peer")})
	}
	return peers
}

// Encode returns the data of a Config entry.
func (c Config) Encode() []byte { return AppendPeers([]byte{byte(c.Phase)}, c.Peers) }

// DecodeConfig decodes the result of Config.Encode.
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

// Text returns the data of d for display: the record of a Control or a Config entry as JSON, and
// the data of other entries. It returns the data if it cannot be decoded.
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
