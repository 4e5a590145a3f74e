// The data of a log entry consists of a header, which contains the kind of the entry and the ID and the time
// of the request, and of the data of the request. The Raft engine does not interpret it.

package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// HeaderSize is the size in bytes of a header without a guard: the kind, the request ID, the time in
// nanoseconds since 1970, and the checksum of the data.
const HeaderSize = 1 + 16 + 8 + 4

// MaxData is the maximum size of the data of an entry in bytes.
const MaxData = wire.MaxData

// ErrMalformed is returned if bytes cannot be decoded as an entry or as a snapshot of the state.
var ErrMalformed = errors.New("raftlog: malformed entry or state")

// Sum returns the checksum of the data of an update, by which the log detects different updates with
// the same ID.
func Sum(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

// Header describes the request that has led to an entry of the log.
type Header struct {
	Kind api.Kind
	ID   api.RequestID
	Time time.Time
	Sum  uint32 // the checksum of the request's data
	// Guard restricts a State entry to a leadership: the entry is skipped if that leadership has ended
	// when the entry is applied. The zero Guard does not restrict the entry.
	Guard Guard
}

// Guard identifies a leadership of an election by the token of the candidate that is the head of the
// queue.
type Guard struct {
	Election string `json:"election"`
	Token    uint64 `json:"token"`
}

// guardFlag is set in the kind of an entry that has a guard. The encoded guard is between the header
// and the data: the token, the length of the election's name in two bytes, and the name.
const guardFlag = 0x80

// MaxElection is the maximum length of the name of an election in bytes.
const MaxElection = wire.MaxElection

// EncodeEntry returns the data of an engine's entry, which contains a header and a copy of data.
func EncodeEntry(h Header, data []byte) []byte {
	return AppendEntry(make([]byte, 0, HeaderSize+len(data)), h, data)
}

// AppendEntry appends to b the same data of an engine's entry that EncodeEntry returns.
func AppendEntry(b []byte, h Header, data []byte) []byte {
	kind := byte(h.Kind)
	if h.Guard != (Guard{}) {
		kind |= guardFlag
	}
	b = append(append(b, kind), h.ID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Time.UnixNano()))
	b = binary.BigEndian.AppendUint32(b, h.Sum)
	if h.Guard != (Guard{}) {
		b = binary.BigEndian.AppendUint64(b, h.Guard.Token)
		b = binary.BigEndian.AppendUint16(b, uint16(len(h.Guard.Election)))
		b = append(b, h.Guard.Election...)
	}
	return append(b, data...)
}

// decodeHeader splits the data of an engine's entry into the header and the data of the request, which
// shares the memory of b.
func decodeHeader(b []byte) (Header, []byte, error) {
	if len(b) < HeaderSize {
		return Header{}, nil, malformedError(b)
	}
	kind, data := api.Kind(b[0]&^guardFlag), b[HeaderSize:]
	if kind > api.KindControl || kind == api.KindCheckpoint {
		return Header{}, nil, malformedError(b)
	}
	var guard Guard
	if b[0]&guardFlag != 0 {
		if kind != api.KindState || len(data) < 10 {
			return Header{}, nil, malformedError(b)
		}
		size := int(binary.BigEndian.Uint16(data[8:]))
		if size > MaxElection || len(data) < 10+size {
			return Header{}, nil, malformedError(b)
		}
		guard = Guard{string(data[10 : 10+size]), binary.BigEndian.Uint64(data)}
		if data = data[10+size:]; guard == (Guard{}) {
			return Header{}, nil, malformedError(b)
		}
	}
	return Header{
		Kind: kind, Guard: guard,
		ID:   api.RequestID(b[1:17]),
		Time: time.Unix(0, int64(binary.BigEndian.Uint64(b[17:25]))),
		Sum:  binary.BigEndian.Uint32(b[25:29]),
	}, data, nil
}

func malformedError(b []byte) error {
	return fmt.Errorf("%w: %d bytes that begin with %x", ErrMalformed, len(b), b[:min(len(b), 4)])
}

// Decoded is a decoded entry of the log.
type Decoded struct {
	Header
	Index, Term uint64
	Data        []byte
	// Change is the configuration change for the engine, if the entry is a Config entry.
	Change *raftpb.ConfChangeV2
}

// DecodeEntry decodes an entry of the engine. An entry without data is a Checkpoint, which is the first
// entry of each leader.
func DecodeEntry(e *raftpb.Entry) (Decoded, error) {
	d := Decoded{Index: e.GetIndex(), Term: e.GetTerm()}
	raw := e.GetData()
	switch e.GetType() {
	case raftpb.EntryNormal:
		if len(raw) == 0 {
			d.Kind = api.KindCheckpoint
			return d, nil
		}
	case raftpb.EntryConfChangeV2:
		d.Change = &raftpb.ConfChangeV2{}
		if err := proto.Unmarshal(raw, d.Change); err != nil {
			return d, fmt.Errorf("%w: entry %d: %w", ErrMalformed, d.Index, err)
		}
		raw = d.Change.GetContext()
	default:
		return d, fmt.Errorf("%w: entry %d has the unknown type %v", ErrMalformed, d.Index, e.GetType())
	}
	h, data, err := decodeHeader(raw)
	if err == nil && (h.Kind == api.KindConfig) != (d.Change != nil) {
		err = fmt.Errorf("%w: an entry of kind %v cannot have type %v", ErrMalformed, h.Kind, e.GetType())
	}
	if err != nil {
		return d, fmt.Errorf("entry %d: %w", d.Index, err)
	}
	d.Header, d.Data = h, data
	return d, nil
}

// Entry returns the entry in the form in which the state machines of users receive it.
func (d Decoded) Entry() api.Entry {
	e := api.Entry{Index: d.Index, Term: d.Term, Kind: d.Kind, ID: d.ID, Time: d.Time}
	if d.Kind == api.KindState || d.Kind == api.KindConfig {
		e.Data = d.Text()
	}
	return e
}
