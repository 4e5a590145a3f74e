package core

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// wireRequest is a request between peers, without the data of an update. A frame has its length in
// four bytes, the wireRequest in JSON, and the data.
type wireRequest struct {
	Seq  uint64       `json:"seq"`
	Kind api.Kind     `json:"kind"`
	ID   requestid.ID `json:"id"`
	Op   *entry.Op    `json:"op,omitempty"`
	To   []api.Peer   `json:"to,omitempty"`

	Guard entry.Guard `json:"guard,omitzero"`
}

func encodeRequest(seq uint64, r Request) []byte {
	w := wireRequest{Seq: seq, Kind: r.Kind, ID: r.ID, To: r.To, Guard: r.Guard}
	if r.Kind == api.Control {
		w.Op = &r.Op
	}
	b, err := json.Marshal(w)
	if err != nil {
		panic(err) // numbers, strings and bytes
	}
	return slices.Concat(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b, r.Data)
}

func decodeRequest(body []byte) (seq uint64, r Request, err error) {
	var w wireRequest
	if len(body) < 4 || uint64(len(body)-4) < uint64(binary.BigEndian.Uint32(body)) {
		return 0, r, fmt.Errorf("a request of %d bytes", len(body))
	}
	size := 4 + int(binary.BigEndian.Uint32(body))
	head, data := body[4:size], slices.Clone(body[size:])
	if err := json.Unmarshal(head, &w); err != nil {
		return 0, r, err
	}
	r = Request{Kind: w.Kind, ID: w.ID, Data: data, To: w.To, Guard: w.Guard}
	switch {
	case len(data) > 0 && w.Kind != api.State:
		return 0, r, fmt.Errorf("a request of kind %v with data", w.Kind)
	case w.Kind > api.Control || w.Kind == api.Checkpoint || w.ID.IsZero():
		return 0, r, fmt.Errorf("a request of kind %v, ID %v", w.Kind, w.ID)
	case len(w.Guard.Election) > entry.MaxElection, w.Guard != (entry.Guard{}) && w.Kind != api.State:
		return 0, r, errors.New("a guard that cannot be")
	case w.Kind == api.Control && w.Op == nil:
		return 0, r, errors.New("a control request that asks for nothing")
	case w.Op != nil:
		r.Op = *w.Op
	}
	return w.Seq, r, nil
}

// wireReply is the answer. Error has the api's bits of errors; one at least, if it is one.
type wireReply struct {
	Seq    uint64   `json:"seq"`
	Index  uint64   `json:"index,omitempty"`
	Error  uint64   `json:"error,omitempty"`
	Text   string   `json:"text,omitempty"`
	Leader api.Peer `json:"leader,omitzero"`
}

func encodeReply(seq, index uint64, err error) []byte {
	w := wireReply{Seq: seq, Index: index}
	if err != nil {
		w.Text, w.Error = err.Error(), api.ErrorBits(err)
		if w.Error == 0 {
			w.Error = api.ErrorBits(api.ErrUnknownOutcome)
		}
		if e, ok := errors.AsType[*api.NotLeaderError](err); ok {
			w.Leader = e.Leader
		}
	}
	b, err := json.Marshal(w)
	if err != nil {
		panic(err)
	}
	return b
}

func decodeReply(body []byte) (seq, index uint64, err, malformed error) {
	var w wireReply
	if e := json.Unmarshal(body, &w); e != nil {
		return 0, 0, nil, fmt.Errorf("%w: reply: %w", errFrame, e)
	}
	switch {
	case w.Error == 0:
		return w.Seq, w.Index, nil, nil
	case w.Error > api.AllErrors:
		return 0, 0, nil, fmt.Errorf("%w: reply with error %#x", errFrame, w.Error)
	}
	return w.Seq, w.Index, api.RemoteError(w.Error, w.Leader, w.Text), nil
}

func sortedKeys[V any](m map[uint64]V) []uint64 { return slices.Sorted(maps.Keys(m)) }

// sortedPending is in the order of IDs, so that a simulation sees one order.
func sortedPending(m map[requestid.ID]*pending) []*pending {
	ids := slices.SortedFunc(maps.Keys(m), func(a, b requestid.ID) int { return slices.Compare(a[:], b[:]) })
	var all []*pending
	for _, id := range ids {
		all = append(all, m[id])
	}
	return all
}
