package core

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/raft/v3/raftpb"
)

// These are the numbers of the protobuf fields of raftpb.Message and raftpb.Entry that decodeFrequent can
// decode.
const (
	fieldType, fieldTo, fieldFrom, fieldTerm, fieldLogTerm = 1, 2, 3, 4, 5
	fieldIndex, fieldEntries, fieldCommit                  = 6, 7, 8
	fieldReject, fieldRejectHint, fieldVote                = 10, 11, 13
	entryType, entryTerm, entryIndex, entryData            = 1, 2, 3, 4
)

// decodeMessage decodes a message of the engine. The message refers to the memory of b, so the caller
// must not modify b any more.
func decodeMessage(b []byte) (*raftpb.Message, error) {
	if m := decodeFrequent(b); m != nil {
		return m, nil
	}
	m := &raftpb.Message{}
	return m, proto.Unmarshal(b, m)
}

// messageMemory contains a message and the values of its pointer fields, so that a single allocation
// suffices for all of them.
type messageMemory struct {
	raftpb.Message
	kind                                                raftpb.MessageType
	to, from, term, logTerm, index, commit, hint, voted uint64
	reject                                              bool
}

// entryMemory contains an entry and the values of its pointer fields.
type entryMemory struct {
	raftpb.Entry
	kind        raftpb.EntryType
	term, index uint64
}

// decodeFrequent decodes a message that contains only fields of frequent messages. It returns nil for any
// other message and for a malformed one, which the caller decodes by package proto. decodeFrequent is faster,
// because package proto needs an allocation for each field, and copies the data of entries.
func decodeFrequent(b []byte) *raftpb.Message {
	m := new(messageMemory)
	var unused []entryMemory
	ok := decodeFields(b, func(number protowire.Number, value uint64, data []byte) bool {
		if data != nil {
			if number != fieldEntries {
				return false
			}
			if len(unused) == 0 { // allocate once: most messages contain entries of equal size
				unused = make([]entryMemory, min(len(b)/(len(data)+2)+1, maxBatch))
				m.Entries = slices.Grow(m.Entries, len(unused))
			}
			e := &unused[0]
			unused = unused[1:]
			m.Entries = append(m.Entries, &e.Entry)
			return e.decode(data)
		}
		switch number {
		case fieldType:
			m.kind, m.Type = raftpb.MessageType(int32(value)), &m.kind
		case fieldTo:
			m.to, m.To = value, &m.to
		case fieldFrom:
			m.from, m.From = value, &m.from
		case fieldTerm:
			m.term, m.Term = value, &m.term
		case fieldLogTerm:
			m.logTerm, m.LogTerm = value, &m.logTerm
		case fieldIndex:
			m.index, m.Index = value, &m.index
		case fieldCommit:
			m.commit, m.Commit = value, &m.commit
		case fieldReject:
			m.reject, m.Reject = value != 0, &m.reject
		case fieldRejectHint:
			m.hint, m.RejectHint = value, &m.hint
		case fieldVote:
			m.voted, m.Vote = value, &m.voted
		default:
			return false
		}
		return true
	})
	if !ok {
		return nil
	}
	return &m.Message
}

func (e *entryMemory) decode(b []byte) bool {
	return decodeFields(b, func(number protowire.Number, value uint64, data []byte) bool {
		switch {
		case data != nil:
			e.Data = data
			return number == entryData
		case number == entryType:
			e.kind, e.Type = raftpb.EntryType(int32(value)), &e.kind
		case number == entryTerm:
			e.term, e.Term = value, &e.term
		case number == entryIndex:
			e.index, e.Index = value, &e.index
		default:
			return false
		}
		return true
	})
}

// decodeFields calls the function field for each protobuf field of b, with a number or with a sequence of
// bytes, which is not nil. It stops and returns false at a malformed field, a field of another kind, or a
// field for which the function returns false.
func decodeFields(b []byte, field func(number protowire.Number, value uint64, data []byte) bool) bool {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		var value uint64
		var data []byte
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			if data, n = protowire.ConsumeBytes(b); data == nil {
				data = []byte{}
			}
		default:
			return false
		}
		if n < 0 || !field(number, value, data) {
			return false
		}
		b = b[n:]
	}
	return true
}
