package replica

// WriteTo writes the state to a snapshot in this format:
//
//	magic, length of the record u32, the record, and the table of request IDs (ids_codec.go)
//
// The record is encoded like messages, by package wire.

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

const (
	magic = "raftstate\x01"
	// maxRecord is the maximum length of the record in a snapshot. It limits the memory that reading a
	// damaged snapshot can use. WriteTo writes no longer record, because the log is truncated when a
	// snapshot exists.
	maxRecord = 256 << 20
)

// appendRecord appends the encoded state, with the given skips and without the request IDs.
func (s *State) appendRecord(b []byte, skips []uint64) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, s.Index), s.Term)
	b = wire.AppendTime(wire.AppendTime(b, s.Clock), s.Horizon)
	b = binary.AppendVarint(binary.AppendVarint(b, int64(s.Window)), int64(s.Election))
	b = binary.AppendUvarint(b, s.TransferTerm)
	b = s.Elections.append(s.Members.append(b))
	b = binary.AppendUvarint(b, uint64(len(skips)))
	for _, index := range skips {
		b = binary.AppendUvarint(b, index)
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, s.skipsSum), s.History)
}

func decodeRecord(record []byte) (*State, error) {
	d := wire.Decoder{B: record}
	s := &State{Index: d.Uint64("index"), Term: d.Uint64("term"), Clock: d.Time(), Horizon: d.Time()}
	s.Window, s.Election = time.Duration(d.Int("window")), time.Duration(d.Int("election timeout"))
	s.TransferTerm = d.Uint64("term")
	s.Members = decodeMembers(&d)
	var err error
	if s.Elections, err = decodeElections(&d, s.Index); err != nil {
		return nil, err
	}
	s.Skips = decodeList(&d, "skipped index", func() uint64 { return d.Uint64("skipped index") })
	s.skipsSum, s.History = d.Uint64("checksum"), d.Uint64("checksum")
	if err := d.End(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if s.Index == 0 || s.Window <= 0 || s.Election <= 0 {
		return nil, fmt.Errorf("%w: index, window or election timeout is missing", ErrMalformed)
	}
	return s, nil
}

// decodeList decodes a list: the number of the elements, and each of them by the function element.
func decodeList[T any](d *wire.Decoder, what string, element func() T) (list []T) {
	for range d.Count("number of elements: "+what, uint64(len(d.B)), 1) {
		list = append(list, element())
	}
	return list
}

func (m *Members) append(b []byte) []byte {
	b = binary.AppendUvarint(b, m.Index)
	for _, peers := range [][]Peer{m.Voters, m.Outgoing, m.Learners} {
		b = AppendPeers(b, peers)
	}
	b = binary.AppendUvarint(b, uint64(len(m.Removed)))
	for _, id := range m.Removed {
		b = wire.AppendString(b, id)
	}
	b = append(b, m.Change[:]...)
	return binary.AppendUvarint(binary.AppendUvarint(b, m.Changed), m.Settled)
}

func decodeMembers(d *wire.Decoder) Members {
	m := Members{Index: d.Uint64("index"), Voters: DecodePeers(d), Outgoing: DecodePeers(d), Learners: DecodePeers(d)}
	m.Removed = decodeList(d, "ID of a removed peer", func() string { return decodeString(d) })
	copy(m.Change[:], d.Raw("request ID", uint64(len(api.RequestID{}))))
	m.Changed, m.Settled = d.Uint64("index"), d.Uint64("index")
	return m
}

// decodeString decodes a string, whose length is limited only by the remaining bytes of the record.
func decodeString(d *wire.Decoder) string { return d.String("text", uint64(len(d.B))) }

func (es *Elections) append(b []byte) []byte {
	b = binary.AppendUvarint(b, es.forgotten)
	b = binary.AppendUvarint(b, uint64(len(es.byName)))
	for _, name := range slices.Sorted(maps.Keys(es.byName)) {
		e := es.byName[name]
		b = wire.AppendBool(wire.AppendString(b, name), e.Ended)
		b = binary.AppendUvarint(binary.AppendUvarint(b, e.EndedAt), e.RestartedAt)
		b = binary.AppendUvarint(wire.AppendTime(b, e.Date), uint64(len(e.Candidates)))
		for _, c := range e.Candidates {
			b = wire.AppendString(wire.AppendString(b, c.ID), c.Name)
			b = binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(b, c.Peer), c.Joined), c.Token)
		}
	}
	return b
}

// decodeElections decodes the elections of a state that has the given index. The error wraps
// ErrMalformed if the elections are inconsistent. Errors of d remain in d.
func decodeElections(d *wire.Decoder, index uint64) (Elections, error) {
	es := newElections()
	if es.forgotten = d.Uint64("index"); es.forgotten > index {
		return es, fmt.Errorf("%w: elections are forgotten through entry %d, which follows the last entry, %d", ErrMalformed, es.forgotten, index)
	}
	for range d.Count("number of elections", uint64(len(d.B)), 7) {
		name := decodeString(d)
		e := Election{Ended: d.Bool("end of an election"), EndedAt: d.Uint64("index"), RestartedAt: d.Uint64("index"), Date: d.Time()}
		e.Candidates = decodeList(d, "candidate", func() Candidate {
			return Candidate{ID: decodeString(d), Name: decodeString(d), Peer: d.Uint64("peer"), Joined: d.Uint64("index"), Token: d.Uint64("token")}
		})
		at := max(e.EndedAt, e.RestartedAt)
		if at > index || e.EndedAt != 0 && e.RestartedAt != 0 || e.Ended != (e.EndedAt != 0) || e.Ended && len(e.Candidates) > 0 {
			return es, fmt.Errorf("%w: the state of election %q contradicts itself", ErrMalformed, name)
		}
		if at != 0 {
			es.transitions = append(es.transitions, transition{at, e.Date, name})
		}
		es.byName[name] = e
		es.addToCounts(name, e, 1)
	}
	slices.SortFunc(es.transitions, compareTransitions)
	return es, nil
}

// Sum returns a checksum of the state without Skips, which may differ between peers. Equal states have equal
// checksums.
func (s *State) Sum() uint64 {
	h := fnv.New64a()
	h.Write(s.appendRecord(nil, nil))
	h.Write(binary.BigEndian.AppendUint64(nil, s.IDs.Sum()))
	return h.Sum64()
}

// View is the state at one index of the log. Another goroutine may use it while the State changes.
type View struct {
	Index, Term uint64
	state       State // the state without the IDs; of its elections, only byName is set
	ids         *IDsView
}

// View returns a view of the current state. It encodes nothing, so it takes little time.
func (s *State) View() *View {
	v := &View{s.Index, s.Term, *s, s.IDs.Snapshot()}
	v.state.IDs = nil
	v.state.Elections = Elections{byName: maps.Clone(s.Elections.byName), forgotten: s.Elections.forgotten}
	return v
}

// WriteTo writes the view in the format that [Read] reads. The error wraps [api.ErrTooLarge] if Read
// would reject the result.
func (v *View) WriteTo(w io.Writer) (int64, error) { return v.writeLimited(w, maxRecord) }

// writeLimited writes the view like WriteTo, but returns an error if its record is longer than limit.
func (v *View) writeLimited(w io.Writer, limit int) (int64, error) {
	head := len(magic) + 4
	b := v.state.appendRecord(append([]byte(magic), 0, 0, 0, 0), v.state.Skips)
	if len(b)-head > limit {
		return 0, fmt.Errorf("%w: elections, members and skipped entries of %d bytes exceed the limit of %d of a snapshot", api.ErrTooLarge, len(b)-head, limit)
	}
	binary.BigEndian.PutUint32(b[len(magic):], uint32(len(b)-head))
	n, err := w.Write(b)
	if err != nil {
		return int64(n), err
	}
	m, err := v.ids.WriteTo(w)
	return int64(n) + m, err
}

// Read reads the state that [View.WriteTo] has written. The error wraps [ErrMalformed] or
// [ErrCorruptIDs] if the format is unknown or the bytes are damaged.
func Read(r io.Reader) (*State, error) {
	s, err := readState(r)
	if err != nil {
		return nil, fmt.Errorf("raftlog: read the state of a snapshot: %w", err)
	}
	if s.IDs, err = readIDs(r); err != nil {
		return nil, fmt.Errorf("raftlog: read the request IDs of a snapshot: %w", err)
	}
	return s, nil
}

func readState(r io.Reader) (*State, error) {
	head := make([]byte, len(magic)+4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	if string(head[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: unknown format of a state that begins with %q: another version of this program has written it", ErrMalformed, head[:len(magic)])
	}
	size := binary.BigEndian.Uint32(head[len(magic):])
	if size > maxRecord {
		return nil, fmt.Errorf("%w: the record has %d bytes, the limit is %d", ErrMalformed, size, maxRecord)
	}
	record, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err == nil && len(record) != int(size) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	return decodeRecord(record)
}
