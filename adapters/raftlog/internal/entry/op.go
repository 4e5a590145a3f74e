package entry

import (
	"encoding/json"
	"fmt"
	"time"
)

// Op is the operation of a Control entry.
type Op struct {
	Do        string        `json:"do"`
	Election  string        `json:"election,omitempty"`
	Candidate string        `json:"candidate,omitempty"` // never used again
	Name      string        `json:"name,omitempty"`
	Peer      uint64        `json:"peer,omitempty"`
	Through   uint64        `json:"through,omitempty"`
	Window    time.Duration `json:"window,omitempty"`
	Addr      string        `json:"addr,omitempty"`
}

// The operations.
const (
	// Join appends Candidate, which belongs to Peer, to the queue of Election.
	Join = "join"
	// Leave removes Candidate from the queue of Election.
	Leave = "leave"
	// End ends Election: its candidates are removed, and no candidate can join. Through is the
	// last index that the requester had seen. If Election was restarted by a later entry, End
	// has no effect, because the election that the requester has seen had already ended.
	End = "end"
	// Restart makes an ended Election accept candidates again. Through is the last index that
	// the requester had seen. If Election was ended by a later entry, Restart has no effect.
	Restart = "restart"
	// Forget removes elections that were ended by an entry with an index of at most Through. After
	// it, a request to End an election is rejected if its Through is less than this one: it could
	// concern an election that was removed and restarted.
	Forget = "forget"
	// Expire removes the candidates of Peer that have joined through index Through from all
	// queues.
	Expire = "expire"
	// Transfer announces that the leader of this term will transfer the leadership of the log
	// before its lease has expired.
	Transfer = "transfer"
	// Settled confirms that a majority of the new voters has stored the entry at index Through,
	// which has completed a change of the voters. A peer that has this entry has also received
	// the entry at Through.
	Settled = "settled"
	// Move changes the address of Peer to Addr.
	Move = "move"
	// Window sets the time for which request IDs are remembered.
	Window = "window"
)

// Encode returns the data of a Control entry.
func (o Op) Encode() []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // cannot happen: the fields are strings and numbers
	}
	return b
}

// DecodeOp is the inverse of Op.Encode.
func DecodeOp(data []byte) (Op, error) {
	var o Op
	if err := json.Unmarshal(data, &o); err != nil {
		return o, fmt.Errorf("%w: control: %w", ErrMalformed, err)
	}
	return o, nil
}

// Config is the data of a Config entry, a step of a change of the membership.
type Config struct {
	// Phase is the step.
	Phase Phase `json:"phase"`
	// Peers are the new learner, or all new voters.
	Peers []Peer `json:"peers,omitempty"`
}

// Phase is a step of a change of the membership.
type Phase string

// The phases.
const (
	// Admit makes a peer that is not a member a learner, which receives the log.
	Admit Phase = "client"
	// Dismiss removes a learner.
	Dismiss Phase = "dismiss"
	// Joint begins joint consensus: majorities of the old and of the new voters are required.
	Joint Phase = "joint"
	// Final ends joint consensus: only the new voters remain.
	Final Phase = "final"
	// Recover makes the peer the only member of the cluster, after an operator has recovered
	// it. It is not written by a leader.
	Recover Phase = "recover"
)

// Peer is a member, with its ID in the engine.
type Peer struct {
	ID   string `json:"id"`
	Addr string `json:"addr"`
	Raft uint64 `json:"raft"`
}

// Is reports whether p and q are the same peer. Their addresses may differ.
func (p Peer) Is(q Peer) bool { return p.Raft == q.Raft }

// Encode returns the data of a Config entry.
func (c Config) Encode() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return b
}

// DecodeConfig is the inverse of Config.Encode.
func DecodeConfig(data []byte) (Config, error) {
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%w: config: %w", ErrMalformed, err)
	}
	return c, nil
}
