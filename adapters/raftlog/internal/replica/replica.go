// Package replica is the state that every peer reckons from the log alone, and that is
// therefore the same at all of them at the same index: which request IDs are known, who
// stands in which election, who the peers are. Nothing here looks at a clock: time is what
// leaders have written into entries.
package replica

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/dedup"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/protection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

const (
	// Ahead is how far in the future an ID's time may be.
	Ahead = 15 * time.Minute
	// slack is for how long an ID is remembered after it would be refused as stale.
	slack = time.Minute
)

// State is what the log says. It belongs to one goroutine.
type State struct {
	Index, Term uint64 // of the last entry applied
	Clock       time.Time
	Window      time.Duration // for how long IDs are fresh
	Horizon     time.Time     // IDs of before are forgotten
	Election    time.Duration // the election timeout that the cluster was made with
	Transferred uint64        // the newest term whose leader has begun to hand over
	Members     Members
	Lines       Lines
	IDs         *dedup.Table
	// Skips are the indexes of State entries that were not applied, in ascending order: they
	// repeat an ID, or it was not fresh, or their leadership had ended. There are few: a leader
	// writes none that it knows of. Peers whose logs begin at different entries have different
	// Skips, see DropSkips.
	Skips    []uint64
	skipsSum uint64 // of all skips, dropped or not
	// History is a checksum of all entries that were applied, and of what became of them. It is
	// the same at all peers at the same index, unless the peers have different entries there.
	History uint64

	Off protection.Set // empty, except in the controls of the simulation
}

// New returns the state of a cluster that begins with these voters.
func New(voters []entry.Peer, window, election time.Duration) *State {
	return &State{
		Index: 1, Term: 1, Window: window, Election: election,
		Members: newMembers(voters), Lines: newLines(), IDs: dedup.New(),
	}
}

// Outcome is what an entry has done.
type Outcome struct {
	entry.Decoded
	// Err is why the entry changes nothing: api.ErrStale, ErrFuture, ErrRequestIDReused, or
	// ErrInvalid.
	Err error
	// First is the index of the entry that was applied with the same ID: this one's, or an
	// earlier one's.
	First uint64
	// Election is the one whose line has changed; of Expire it is empty, see Expired.
	Election string
	// Expired are the elections that an Expire has changed, or a Forget has removed.
	Expired []string
	// Ended are the candidates that stood in the line of an election that was ended.
	Ended []Candidate
	// Change is to be given to the engine, of a Config entry that is in force.
	Change *raftpb.ConfChangeV2
	// Moved says that a member has another address now.
	Moved bool
	// Steps are applied to the engine in order; Change is nil then.
	Steps []*raftpb.ConfChangeV2
}

// Skipped tells whether the state machine is not to have it.
func (o Outcome) Skipped() bool { return o.Err != nil || o.First != o.Index }

// Known answers for an ID as the log does: if the ID is known, the index of its entry, or
// [api.ErrRequestIDReused]; if not, why an update with this ID would not be applied at that
// time.
func (s *State) Known(id requestid.ID, sum uint32, now time.Time) (index uint64, known bool, err error) {
	if index, was, ok := s.IDs.Lookup(id); ok {
		if was != sum {
			return index, true, fmt.Errorf("%w (entry %d)", api.ErrRequestIDReused, index)
		}
		return index, true, nil
	}
	if now.Before(s.Clock) {
		now = s.Clock
	}
	switch made := id.Time(); {
	case made.Before(now.Add(-s.Window)), made.Before(s.Horizon):
		return 0, false, fmt.Errorf("%w: its time is %v, and the window is %v", api.ErrStale, made.UTC(), s.Window)
	case made.After(now.Add(Ahead)):
		return 0, false, fmt.Errorf("%w: its time is %v, and the time of the leader is %v", api.ErrFuture, made.UTC(), now.UTC())
	}
	return 0, false, nil
}

// Apply applies the next entry. An error says that the entry cannot be read, which is the
// end of this replica.
func (s *State) Apply(e *raftpb.Entry) (Outcome, error) {
	o, err := s.apply(e)
	if err == nil {
		s.chain(e, o)
	}
	return o, err
}

// chain adds an entry to the history.
func (s *State) chain(e *raftpb.Entry, o Outcome) {
	became := o.First << 1
	if o.Err != nil {
		became |= 1
	}
	data := e.GetData()
	for _, v := range [...]uint64{e.GetIndex(), e.GetTerm(), uint64(len(data))<<32 | uint64(entry.Sum(data)), became} {
		s.History = (s.History ^ v) * 0x9e3779b97f4a7c15
		s.History ^= s.History >> 32
	}
}

func (s *State) apply(e *raftpb.Entry) (Outcome, error) {
	if e.GetIndex() != s.Index+1 {
		return Outcome{}, fmt.Errorf("%w: entry %d follows %d", entry.ErrMalformed, e.GetIndex(), s.Index)
	}
	d, err := entry.Decode(e)
	if err != nil {
		return Outcome{}, err
	}
	s.Index, s.Term = d.Index, d.Term
	o := Outcome{Decoded: d, First: d.Index}
	if d.Kind == api.KindCheckpoint {
		return o, nil
	}
	if d.Time.After(s.Clock) {
		s.Clock = d.Time
	}
	switch d.Kind {
	case api.KindState:
		s.remember(&o)
		if o.Skipped() {
			s.Skips = append(s.Skips, o.Index)
			s.skipsSum = s.skipsSum*31 + o.Index
		}
	case api.KindConfig:
		err = s.reconfigure(&o)
	case api.KindControl:
		err = s.control(&o)
	}
	if before := s.Clock.Add(-s.Window - slack); before.After(s.Horizon) {
		s.Horizon = before // it does not go back when the window is lengthened
		s.IDs.Expire(before)
	}
	return o, err
}

// remember decides whether an update, or a change of the peers that somebody has asked for,
// is the first of its ID.
func (s *State) remember(o *Outcome) {
	index, known, err := s.Known(o.ID, o.Sum, o.Time)
	switch {
	case s.Off.Has(protection.Deduplication):
	case known:
		o.First, o.Err = index, err
	case !s.Holds(o.Guard):
		o.Err = api.ErrFenced
	case err != nil:
		o.Err = err
	default:
		s.IDs.Insert(o.ID, o.Index, o.Sum)
	}
}

// DropSkips forgets the skips through an index: this peer's log does not have their entries any
// more, so that they need not be marked. Slices that were taken from Skips before keep them.
func (s *State) DropSkips(through uint64) {
	if i, found := slices.BinarySearch(s.Skips, through); found || i > 0 {
		if found {
			i++
		}
		s.Skips = slices.Clone(s.Skips[i:])
	}
}

// Holds tells whether the first of the guard's election has its token; true for no guard.
func (s *State) Holds(g entry.Guard) bool {
	first, found := s.Lines.Line(g.Election).First()
	return g == (entry.Guard{}) || found && first.Token == g.Token
}

func (s *State) control(o *Outcome) error {
	op, err := entry.DecodeOp(o.Data)
	if err != nil {
		return err
	}
	switch op.Do {
	case entry.Expire:
		o.Expired = s.Lines.expire(op, o.Index)
	case entry.Forget:
		o.Expired, o.Err = s.Lines.forget(op, o.Index)
	case entry.Transfer:
		s.Transferred = o.Term
	case entry.Settled:
		if m := &s.Members; m.Unsettled() && op.Through == m.Changed {
			m.Settled = o.Index
		}
	case entry.Move:
		o.Err = s.Members.move(op.Peer, op.Addr, o.Index)
		o.Moved = o.Err == nil
	case entry.Window:
		if op.Window > s.Window { // it may be lengthened: what was forgotten stays forgotten
			s.Window = op.Window
		}
	default:
		before := s.Lines.Line(op.Election)
		o.Election = op.Election
		o.Err = s.Lines.apply(op, o.Index, s.Clock)
		if s.Lines.Line(op.Election).Ended {
			o.Ended = before.Candidates
		}
	}
	return nil
}

// PruneIndex is the index before the first entry whose ID is remembered: whoever keeps the
// entries behind it has kept all IDs.
func (s *State) PruneIndex() uint64 {
	if oldest, ok := s.IDs.OldestIndex(); ok {
		return oldest - 1
	}
	return s.Index
}

// Sum is equal for equal states, whatever way they came about.
func (s *State) Sum() uint64 {
	h := fnv.New64a()
	r := s.rest()
	r.Skips = nil
	h.Write(r.encode())
	h.Write(binary.BigEndian.AppendUint64(nil, s.IDs.Sum()))
	return h.Sum64()
}

// saved is what stands before the IDs in a snapshot.
type saved struct {
	Index       uint64        `json:"index"`
	Term        uint64        `json:"term"`
	Clock       int64         `json:"clock"`
	Horizon     int64         `json:"horizon"`
	Window      time.Duration `json:"window"`
	Election    time.Duration `json:"election"`
	Transferred uint64        `json:"transferred,omitempty"`
	Members     Members       `json:"members"`
	Lines       []savedLine   `json:"lines,omitempty"`
	Forgotten   uint64        `json:"forgotten,omitempty"`
	Skips       []uint64      `json:"skips,omitempty"`
	SkipsSum    uint64        `json:"skipsSum,omitempty"`
	History     uint64        `json:"history,omitempty"`
}

// rest returns the state without the IDs. It shares nothing that Apply changes.
func (s *State) rest() rest {
	return rest{saved{
		s.Index, s.Term, nanoseconds(s.Clock), nanoseconds(s.Horizon), s.Window, s.Election, s.Transferred, s.Members, nil, s.Lines.forgotten, s.Skips, s.skipsSum, s.History,
	}, maps.Clone(s.Lines.byName)}
}

type rest struct {
	saved
	lines map[string]Line
}

func (r rest) encode() []byte {
	r.saved.Lines = save(r.lines)
	b, err := json.Marshal(r.saved)
	if err != nil {
		panic(err)
	}
	return b
}

// View is the state at one index.
type View struct {
	Index, Term uint64
	rest        rest
	ids         *dedup.View
}

// View returns the present state, for another goroutine to write while the state changes. It
// encodes nothing, so that it takes little time.
func (s *State) View() *View {
	return &View{s.Index, s.Term, s.rest(), s.IDs.Snapshot()}
}

// WriteTo writes the view, for [Read].
func (v *View) WriteTo(w io.Writer) (int64, error) {
	b := v.rest.encode()
	head := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
	n, err := w.Write(append(head, b...))
	if err != nil {
		return int64(n), err
	}
	m, err := v.ids.WriteTo(w)
	return int64(n) + m, err
}

// maxRest bounds what a damaged snapshot can ask for.
const maxRest = 256 << 20

// Read reads what [View.WriteTo] has written.
func Read(r io.Reader) (*State, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("raftlog: read the tables of a snapshot: %w", err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxRest {
		return nil, fmt.Errorf("raftlog: read the tables of a snapshot: they claim %d bytes: %w", size, entry.ErrMalformed)
	}
	rest, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err == nil && len(rest) != int(size) {
		err = io.ErrUnexpectedEOF
	}
	var v saved
	if err == nil {
		err = json.Unmarshal(rest, &v)
	}
	if err != nil {
		return nil, fmt.Errorf("raftlog: read the tables of a snapshot: %w", err)
	}
	if v.Index == 0 || v.Window <= 0 || v.Election <= 0 {
		return nil, fmt.Errorf("raftlog: read the tables of a snapshot: %w", errors.Join(entry.ErrMalformed, errors.New("index, window or election timeout is missing")))
	}
	lines, err := load(v.Lines, v.Forgotten, v.Index, fromNanoseconds(v.Clock))
	if err != nil {
		return nil, fmt.Errorf("raftlog: read the tables of a snapshot: %w", err)
	}
	table, err := dedup.Read(r)
	if err != nil {
		return nil, fmt.Errorf("raftlog: read the request IDs of a snapshot: %w", err)
	}
	s := &State{
		Index: v.Index, Term: v.Term, Window: v.Window, Election: v.Election, Transferred: v.Transferred,
		Members: v.Members, Lines: lines, IDs: table, Skips: v.Skips, skipsSum: v.SkipsSum, History: v.History,
	}
	s.Clock, s.Horizon = fromNanoseconds(v.Clock), fromNanoseconds(v.Horizon)
	return s, nil
}

// nanoseconds is 0 for the zero time.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanoseconds(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}
