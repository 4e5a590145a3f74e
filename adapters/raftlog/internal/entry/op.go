package entry

import (
	"encoding/json"
	"fmt"
	"time"
)

// Op is what a Control entry asks for.
type Op struct {
	Do        string        `json:"do"`
	Election  string        `json:"election,omitempty"`
	Candidate string        `json:"candidate,omitempty"` // unique for ever
	Name      string        `json:"name,omitempty"`
	Peer      uint64        `json:"peer,omitempty"`
	Through   uint64        `json:"through,omitempty"`
	Window    time.Duration `json:"window,omitempty"`
	Addr      string        `json:"addr,omitempty"`
}

// What there is to do.
const (
	// Join puts Candidate, of Peer, at the end of Election's line.
	Join = "join"
	// Leave takes Candidate out of Election's line.
	Leave = "leave"
	// End is the end of Election, for all candidates and newcomers; unless it was begun anew
	// by an entry behind Through, which is how far who asks for it knew the log: what was
	// there then was ended already. 0 is for none such.
	End = "end"
	// Restart lets Election begin anew after its end, by an entry that is not behind Through,
	// which is as of End: of a later end who asks does not know.
	Restart = "restart"
	// Forget removes elections that were ended by an entry with an index of at most Through. After
	// it, a request to End an election is rejected if its Through is less than this one: it could
	// concern an election that was removed and restarted.
	Forget = "forget"
	// Expire takes out of all lines the candidates of Peer that have joined by index Through.
	Expire = "expire"
	// Transfer says that the leader of this term is about to have another one elected without
	// waiting for its lease.
	Transfer = "transfer"
	// Settled says that the change of the voters that was complete by the entry with index
	// Through is known, by their disks, to most of the new ones: who has this entry has that.
	Settled = "settled"
	// Move says that others reach Peer at Addr from now on.
	Move = "move"
	// Window sets for how long request IDs are remembered.
	Window = "window"
)

// Encode returns the data of a Control entry.
func (o Op) Encode() []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

// DecodeOp reads what Encode has written.
func DecodeOp(data []byte) (Op, error) {
	var o Op
	if err := json.Unmarshal(data, &o); err != nil {
		return o, fmt.Errorf("%w: control: %w", ErrMalformed, err)
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

// Phase of a change of the peers.
type Phase string

// The phases.
const (
	// Admit: a peer outside the configuration becomes a client, that gets the log.
	Admit Phase = "client"
	// Dismiss: a client that is no longer there is left out.
	Dismiss Phase = "dismiss"
	// Joint is Cold,new: from now on both need a majority.
	Joint Phase = "joint"
	// Final is Cnew.
	Final Phase = "final"
	// Recover: an operator has made the peer the only one of the cluster, and all others are
	// removed. No leader writes it.
	Recover Phase = "recover"
)

// Peer of a configuration, with the number by which the engine knows it.
type Peer struct {
	ID   string `json:"id"`
	Addr string `json:"addr"`
	Raft uint64 `json:"raft"`
}

// Is tells whether two are the same peer, at whatever addresses.
func (p Peer) Is(q Peer) bool { return p.Raft == q.Raft }

// Encode returns the data of a Config entry.
func (c Config) Encode() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return b
}

// DecodeConfig reads what Encode has written.
func DecodeConfig(data []byte) (Config, error) {
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%w: config: %w", ErrMalformed, err)
	}
	return c, nil
}
