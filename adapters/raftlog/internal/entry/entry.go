// Package entry is how the log's entries are written: who has asked for one, when, and what
// for. What an engine's entry carries is a header and data, so that the engine knows of
// neither requests nor elections.
package entry

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
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// HeaderSize is how many bytes stand before the data: the kind, the request's ID, the time
// in nanoseconds since 1970, and the data's checksum.
const HeaderSize = 1 + 16 + 8 + 4

// MaxData is how many bytes of data an entry can have.
const MaxData = wire.MaxData

// ErrMalformed: these bytes are not an entry's.
var ErrMalformed = errors.New("raftlog: malformed entry")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum is the checksum of an update's data, by which another update under the same ID is
// recognised.
func Sum(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

// Header says whose an entry is.
type Header struct {
	Kind api.Kind
	ID   requestid.ID
	Time time.Time
	Sum  uint32 // of the data
	// Guard, of a State entry, has it applied only while its candidate leads; zero for none.
	Guard Guard
}

// Guard is a leadership: whoever is the first in the election's line has that token.
type Guard struct {
	Election string `json:"election"`
	Token    uint64 `json:"token"`
}

// guarded marks the kind of an entry that has a guard, which stands between the header and
// the data: the token, the length of the election's name in two bytes, the name.
const guarded = 0x80

// MaxElection is how many bytes an election's name can have.
const MaxElection = wire.MaxElection

// Encode returns what an engine's entry carries. It copies data.
func Encode(h Header, data []byte) []byte {
	b := make([]byte, HeaderSize, HeaderSize+len(data))
	b[0] = byte(h.Kind)
	copy(b[1:17], h.ID[:])
	binary.BigEndian.PutUint64(b[17:25], uint64(h.Time.UnixNano()))
	binary.BigEndian.PutUint32(b[25:29], h.Sum)
	if h.Guard != (Guard{}) {
		b[0] |= guarded
		b = binary.BigEndian.AppendUint64(b, h.Guard.Token)
		b = binary.BigEndian.AppendUint16(b, uint16(len(h.Guard.Election)))
		b = append(b, h.Guard.Election...)
	}
	return append(b, data...)
}

// decode splits what Encode has made. The data are a part of b.
func decode(b []byte) (Header, []byte, error) {
	if len(b) < HeaderSize {
		return Header{}, nil, malformed(b)
	}
	kind, data := api.Kind(b[0]&^guarded), b[HeaderSize:]
	if kind > api.KindControl || kind == api.KindCheckpoint {
		return Header{}, nil, malformed(b)
	}
	var guard Guard
	if b[0]&guarded != 0 {
		if kind != api.KindState || len(data) < 10 {
			return Header{}, nil, malformed(b)
		}
		size := int(binary.BigEndian.Uint16(data[8:]))
		if size > MaxElection || len(data) < 10+size {
			return Header{}, nil, malformed(b)
		}
		guard = Guard{string(data[10 : 10+size]), binary.BigEndian.Uint64(data)}
		if data = data[10+size:]; guard == (Guard{}) {
			return Header{}, nil, malformed(b)
		}
	}
	return Header{
		Kind: kind, Guard: guard,
		ID:   requestid.ID(b[1:17]),
		Time: time.Unix(0, int64(binary.BigEndian.Uint64(b[17:25]))),
		Sum:  binary.BigEndian.Uint32(b[25:29]),
	}, data, nil
}

func malformed(b []byte) error {
	return fmt.Errorf("%w: %d bytes that begin with %x", ErrMalformed, len(b), b[:min(len(b), 4)])
}

// Decoded is an entry with all that is to be known of it.
type Decoded struct {
	Header
	Index, Term uint64
	Data        []byte
	// Change is the engine's part of a Config entry.
	Change *raftpb.ConfChangeV2
}

// Decode reads an engine's entry. An entry without data is a Checkpoint: a leader's first.
func Decode(e *raftpb.Entry) (Decoded, error) {
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
			return d, fmt.Errorf("%w: index %d: %w", ErrMalformed, d.Index, err)
		}
		raw = d.Change.GetContext()
	default:
		return d, fmt.Errorf("%w: index %d has type %v", ErrMalformed, d.Index, e.GetType())
	}
	h, data, err := decode(raw)
	if err == nil && (h.Kind == api.KindConfig) != (d.Change != nil) {
		err = fmt.Errorf("%w: kind %v of type %v", ErrMalformed, h.Kind, e.GetType())
	}
	if err != nil {
		return d, fmt.Errorf("index %d: %w", d.Index, err)
	}
	d.Header, d.Data = h, data
	return d, nil
}

// Entry is d as users see it.
func (d Decoded) Entry() api.Entry {
	e := api.Entry{Index: d.Index, Term: d.Term, Kind: d.Kind, ID: d.ID, Time: d.Time}
	if d.Kind == api.KindState || d.Kind == api.KindConfig {
		e.Data = d.Text()
	}
	return e
}
