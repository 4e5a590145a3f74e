package core

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// encodeRequest encodes a request for the leader. The encoding of a Control request contains the data
// of the entry to write.
func encodeRequest(seq uint64, r Request) []byte {
	data := r.Data
	if r.Kind == api.KindControl {
		data = r.Op.Encode()
	}
	b := make([]byte, 0, len(data)+64)
	b = append(append(binary.AppendUvarint(b, seq), byte(r.Kind)), r.ID[:]...)
	b = binary.AppendUvarint(wire.AppendString(b, r.Guard.Election), r.Guard.Token)
	return append(wire.AppendPeers(b, r.Voters), data...)
}

func decodeRequest(body []byte) (seq uint64, r Request, err error) {
	d := wire.Decoder{B: body}
	seq, r.Kind = d.Uint64("number of a request"), api.Kind(d.Byte("kind of a request"))
	copy(r.ID[:], d.Raw("request ID", uint64(len(r.ID))))
	r.Guard = replica.Guard{Election: d.String("name of an election", replica.MaxElection), Token: d.Uint64("token")}
	r.Voters = d.Peers()
	data := d.Data("data of a request")
	switch {
	case d.Err != nil:
		return 0, r, d.Err
	case r.Kind > api.KindControl || r.Kind == api.KindCheckpoint || r.ID.IsZero():
		return 0, r, fmt.Errorf("peers do not send requests of kind %v with the ID %v", r.Kind, r.ID)
	case len(data) > 0 && r.Kind == api.KindConfig:
		return 0, r, fmt.Errorf("a request of kind %v must not contain data", r.Kind)
	case r.Guard != (replica.Guard{}) && r.Kind != api.KindState:
		return 0, r, fmt.Errorf("a request of kind %v must not contain a guard", r.Kind)
	case r.Kind == api.KindControl:
		r.Op, err = replica.DecodeOp(data)
		return seq, r, err
	}
	r.Data = slices.Clone(data)
	return seq, r, nil
}

// encodeReply encodes the reply to a forwarded request. An error that package api does not define is decoded
// as an unknown outcome.
func encodeReply(seq, index uint64, err error) []byte {
	b := binary.AppendUvarint(binary.AppendUvarint(nil, seq), index)
	if b = wire.AppendBool(b, err != nil); err == nil {
		return b
	}
	if !wire.IsKnown(err) {
		err = unknownOutcome{err}
	}
	return wire.AppendError(b, err)
}

// unknownOutcome wraps api.ErrUnknownOutcome in addition to an error, without changing the error's
// text.
type unknownOutcome struct{ error }

func (unknownOutcome) Is(target error) bool { return target == api.ErrUnknownOutcome }

func decodeReply(body []byte) (seq, index uint64, err, malformed error) {
	d := wire.Decoder{B: body}
	seq, index = d.Uint64("number of a request"), d.Uint64("index")
	if d.Bool("result of a request") {
		err = d.Error()
	}
	if e := d.End(); e != nil {
		return 0, 0, nil, fmt.Errorf("%w: reply: %w", errFrame, e)
	}
	if err != nil && !wire.IsKnown(err) { // encodeReply encodes errors of other packages as ErrUnknownOutcome
		return 0, 0, nil, fmt.Errorf("%w: reply: an error of an unknown kind", errFrame)
	}
	return seq, index, err, nil
}

func sortedKeys[V any](m map[uint64]V) []uint64 { return slices.Sorted(maps.Keys(m)) }

// sortedPending returns proposals in the order of their IDs, so that a simulation replies in the same
// order in each run of a seed.
func sortedPending(m map[api.RequestID]*proposal) []*proposal {
	ids := slices.SortedFunc(maps.Keys(m), func(a, b api.RequestID) int { return slices.Compare(a[:], b[:]) })
	var all []*proposal
	for _, id := range ids {
		all = append(all, m[id])
	}
	return all
}
