package protocol

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The model checker tries every order of events, breadth first, with the function that
// the runtime calls. Time is in whole units, each candidate's clock runs at once or twice
// the speed, as it likes, from one moment to the next, and nothing else is bounded:
//
//   - a request is carried out at any time, or never; its answer comes at any time, or
//     gets lost; the candidate gives up at any time, after which the request may still be
//     carried out;
//   - feeds and reads tell of any state that there ever was, in any order;
//   - feeds break, candidates resign, somebody nominates a successor, the record gets lost.
//
// What is not limited by the number of writes is limited by nothing: every state is
// visited.
//
//	go test ./adapters/changefeed/internal/protocol -run Model -model.large -timeout 2h -v

var large = flag.Bool("model.large", false, "check larger models, for hours and gigabytes")

const maxNodes, maxWrites = 3, 5

// model is what is checked.
type model struct {
	cfg    Config
	nodes  int
	writes int  // how many
	late   bool // requests are carried out after the candidate gave up
	resign bool
	feeds  bool  // break
	hints  bool  // are forged
	marks  uint8 // nominations
	losses uint8 // of the record
	limit  int   // of states; 0 for none

	// Known to be wrong, to see that it is found.
	upsert       bool // writes replace whatever there is
	fromResponse bool // the lease counts from the answer
	atOnce       bool // who claims leads before the answer, and has no lease: leaderfeed's rule
	believe      bool // hints count as what was read
}

// request is one at a store, or on its way there. Records have numbers.
type request struct {
	op         Op
	prev, next uint16
}

// node is a candidate and what is between it and the store.
type node struct {
	s       uint32 // its state, by number; by its clock it is always 0
	out     request
	written bool    // out was carried out, and the answer is on its way
	late    request // given up
}

// world is everything. Two that are equal have the same future.
type world struct {
	nodes   [maxNodes]node
	chain   [maxWrites + 1]uint16 // all that the record ever was
	n       uint8
	lost    bool
	epochs  uint8
	marks   uint8
	losses  uint8
	granted uint64 // the greatest term that was led with
}

type checker struct {
	*model
	states  table[State]
	records table[Record]
	turns   map[turn]turned
	shifts  map[shifted]uint32

	seen    map[world]int32
	all     []world
	from    []int32 // how each was reached, for a trace
	move    []string
	at      int32
	problem string
}

// table numbers values.
type table[T comparable] struct {
	number map[T]uint32
	values []T
}

func (t *table[T]) of(v T) uint32 {
	n, ok := t.number[v]
	if !ok {
		if t.number == nil {
			t.number = map[T]uint32{}
		}
		n = uint32(len(t.values))
		t.number[v] = n
		t.values = append(t.values, v)
	}
	return n
}

// turn is one call of Step, and turned what came of it.
type turn struct {
	node    int
	state   uint32
	kind    Kind
	outcome Outcome
	record  uint16
}

type turned struct {
	state uint32
	sends bool
	out   request
	leads uint64
}

type shifted struct {
	state uint32
	by    Time
}

var names = [maxNodes]string{"a", "b", "c"}

// check visits every state, and returns how many there are and the way to a violation.
func (m *model) check() (states int, trace []string) {
	c := &checker{
		model: m, turns: map[turn]turned{}, shifts: map[shifted]uint32{}, seen: map[world]int32{}, at: -1,
	}
	c.records.of(Record{}) // 0 is none
	var w world
	w.chain[0] = uint16(c.records.of(Record{Epoch: "0.1", Seq: 1, TTL: m.cfg.Lease}))
	w.n, w.epochs = 1, 1
	for i := range m.nodes {
		w.nodes[i].s = c.states.of(canonical(State{}, &m.cfg))
	}
	c.reach(w, "")
	for i := 0; i < len(c.all) && c.problem == "" && (m.limit == 0 || i < m.limit); i++ {
		c.at = int32(i)
		c.moves(c.all[i])
	}
	if c.problem == "" {
		return len(c.all), nil
	}
	trace = []string{c.problem}
	for at := c.at; at > 0; at = c.from[at] {
		trace = append(trace, c.move[at])
	}
	slices.Reverse(trace)
	return len(c.all), trace
}

// reach notes a state.
func (c *checker) reach(w world, move string) {
	if _, ok := c.seen[w]; ok {
		return
	}
	leaders := 0
	for i := range c.nodes {
		if s := &c.states.values[w.nodes[i].s]; s.Leading && s.Deadline-c.cfg.Guard > 0 {
			leaders++
		}
	}
	if leaders > 1 && c.problem == "" {
		c.problem = move + ": two lead"
		return
	}
	c.seen[w] = int32(len(c.all))
	c.all, c.from, c.move = append(c.all, w), append(c.from, c.at), append(c.move, move)
}

var (
	looks, blind, resigns, seesNone = eachName("looks"), eachName("has no feed"), eachName("resigns"), eachName("sees no record")
	givesUp, goesOn, hears          = eachName("gives up"), eachName("gives up, and its request goes on"), eachName("hears that it has written")
	nominated                       = eachName("is nominated")
)

func eachName(what string) (all [maxNodes]string) {
	for i, n := range names {
		all[i] = n + " " + what
	}
	return all
}

// moves are all that can happen next.
func (c *checker) moves(w world) {
	c.timePasses(w)
	for i := range c.nodes {
		s := c.states.values[w.nodes[i].s]
		c.step(w, i, Tick, OK, 0, looks[i])
		for _, r := range w.chain[:w.n] {
			if rec := &c.records.values[r]; !s.Known || rec.Epoch != s.Cur.Epoch || rec.Seq > s.Cur.Seq {
				c.step(w, i, Observed, OK, r, names[i]+" sees "+c.text(r))
			}
		}
		if w.losses > 0 && !s.Lost {
			c.step(w, i, Missing, OK, 0, seesNone[i])
		}
		if c.resign && !s.Leaving && s.Known {
			c.step(w, i, Resign, OK, 0, resigns[i])
		}
		if c.feeds {
			c.step(w, i, FeedDown, OK, 0, blind[i])
		}
		if c.hints && s.Known {
			c.forge(w, i, s.Cur)
		}
		c.requests(w, i)
	}
	if w.lost || int(w.n) > c.writes {
		return
	}
	now := c.records.values[w.chain[w.n-1]]
	for i := range c.nodes {
		if c.marks > w.marks {
			next, r := w, now
			r.Nominee, r.Seq = names[i], r.Seq+1
			next.marks++
			next.write(uint16(c.records.of(r)))
			c.reach(next, nominated[i])
		}
	}
	if c.losses > w.losses {
		w.lost = true
		w.losses++
		c.reach(w, "the record is lost")
	}
}

// hint is the Kind of a turn with an Observed that is a hint.
const hint = Kind(100)

// forge sends candidate i what anybody could send: that the record it knows was written again, as
// any of the states that there were or as the next one, or was released.
func (c *checker) forge(w world, i int, known Record) {
	released := known
	released.Leader, released.Session, released.TTL = "", "", 0
	for seq := known.Seq; seq <= uint64(w.n)+1; seq++ {
		for _, forged := range []Record{known, released} {
			forged.Seq = seq
			r := uint16(c.records.of(forged))
			c.step(w, i, hint, OK, r, names[i]+" receives a forged message: "+c.text(r))
		}
	}
}

func (c *checker) text(r uint16) string {
	rec := &c.records.values[r]
	return fmt.Sprintf("seq %d (epoch %s, leader %q, term %d)", rec.Seq, rec.Epoch, rec.Leader, rec.Term)
}

// timePasses has every clock move on by one or two. All by two is all by one, twice.
func (c *checker) timePasses(w world) {
	for speeds := range 1<<c.nodes - 1 {
		next := w
		for i := range c.nodes {
			next.nodes[i].s = c.shift(w.nodes[i].s, Time(1+speeds>>i&1))
		}
		c.reach(next, times[speeds])
	}
}

var times = [1 << maxNodes]string{
	"time", "time, twice for a", "time, twice for b", "time, twice for a, b",
	"time, twice for c", "time, twice for a, c", "time, twice for b, c",
}

// shift has d pass on a candidate's clock, which shows 0 again afterwards.
func (c *checker) shift(state uint32, d Time) uint32 {
	key := shifted{state, d}
	if to, ok := c.shifts[key]; ok {
		return to
	}
	s := c.states.values[state]
	for _, t := range []*Time{&s.ClaimAt, &s.Sent, &s.Deadline, &s.Beaten} {
		*t -= d
	}
	to := c.states.of(canonical(s, &c.cfg))
	c.shifts[key] = to
	return to
}

// requests is what can happen to those of one candidate.
func (c *checker) requests(w world, i int) {
	n := &w.nodes[i]
	if n.late.op != None {
		c.carryOut(w, i, n.late, true)
	}
	switch {
	case n.out.op == None:
		return
	case n.written:
		c.step(w, i, Done, OK, n.out.next, hears[i])
	default:
		c.carryOut(w, i, n.out, false)
	}
	if n.out.op == Read || n.out.op == Create {
		return // they are sent again, and nothing else follows
	}
	next := w
	if c.late && !n.written && n.late.op == None {
		next.nodes[i].late = n.out
		c.step(next, i, Done, Unknown, 0, goesOn[i])
	}
	c.step(w, i, Done, Unknown, 0, givesUp[i])
}

// carryOut has the store do what is asked. What changes nothing is answered at once: an
// answer that comes later is one that was old when it came.
func (c *checker) carryOut(w world, i int, r request, late bool) {
	now := &c.records.values[w.chain[w.n-1]]
	prev := &c.records.values[r.prev]
	room := int(w.n) <= c.writes
	switch {
	case r.op == Read: // of any age
		if w.losses > 0 {
			c.step(w, i, Done, NoRecord, 0, names[i]+" reads that there is none")
		}
		for _, old := range w.chain[:w.n] {
			c.step(w, i, Done, OK, old, names[i]+" reads "+c.text(old))
		}
	case r.op == Create && w.lost && room:
		rec := c.records.values[r.next]
		w.lost = false
		w.epochs++
		rec.Epoch = fmt.Sprint("0.", w.epochs)
		rec.Term = max(rec.Term, 100*uint64(w.epochs)) // the wall clock's
		w.write(uint16(c.records.of(rec)))
		c.step(w, i, Done, OK, 0, names[i]+" creates the record")
	case r.op == Create && !w.lost:
		c.step(w, i, Done, OK, 0, names[i]+" finds that there is a record")
	case r.op == Create:
	case w.lost, !c.upsert && (now.Seq != prev.Seq || now.Epoch != prev.Epoch):
		if late {
			w.nodes[i].late = request{}
			c.reach(w, names[i]+"'s late request fails")
			return
		}
		if w.lost {
			c.step(w, i, Done, NoRecord, 0, names[i]+" finds no record to replace")
		} else {
			c.step(w, i, Done, Conflict, 0, names[i]+" finds a conflict")
		}
	case room:
		w.write(r.next)
		if late {
			w.nodes[i].late = request{}
		} else {
			w.nodes[i].written = true
		}
		c.reach(w, names[i]+" writes "+c.text(r.next))
	}
}

func (w *world) write(r uint16) {
	w.chain[w.n] = r
	w.n++
}

// step is one turn of a candidate.
func (c *checker) step(w world, i int, kind Kind, outcome Outcome, record uint16, what string) {
	key := turn{i, w.nodes[i].s, kind, outcome, record}
	t, ok := c.turns[key]
	if !ok {
		t = c.turn(key)
		c.turns[key] = t
	}
	n := &w.nodes[i]
	if n.s == t.state && kind != Done {
		return // nothing has changed
	}
	n.s = t.state
	if kind == Done {
		n.out, n.written = request{}, false
	}
	if t.sends {
		n.out = t.out
	}
	if t.leads > 0 {
		if t.leads <= w.granted && c.problem == "" {
			c.problem = fmt.Sprintf("%s: leads with term %d after %d", what, t.leads, w.granted)
			return
		}
		w.granted = t.leads
	}
	c.reach(w, what)
}

func (c *checker) turn(key turn) (t turned) {
	cfg := c.cfg
	cfg.ID, cfg.Session = names[key.node], names[key.node]
	in := Input{Kind: key.kind, Outcome: key.outcome, Record: c.records.values[key.record]}
	if key.kind == hint {
		in.Kind, in.Hint = Observed, !c.believe
	}
	in.ByFeed = in.Kind == Observed || in.Kind == Missing
	s := c.states.values[key.state]
	if c.fromResponse && in.Kind == Done {
		s.Sent = 0
	}
	s, actions := Step(&cfg, s, in, 0)
	for _, a := range actions {
		switch a.Do {
		case Send:
			t.sends, t.out = true, request{a.Op, uint16(c.records.of(a.Prev)), uint16(c.records.of(a.Record))}
			if a.Op == Claim && c.atOnce {
				s.Leading, s.Term, s.Deadline = true, a.Record.Term, 1000
			}
		case Lead:
			t.leads = a.Term
		}
	}
	t.state = c.states.of(canonical(s, &c.cfg))
	return t
}

// canonical leaves out what does not matter any more: how long ago something was due. And
// pauses, which the model has end at any time, and the feed, which it takes to work again
// at once.
func canonical(s State, c *Config) State {
	s.Open, s.Feed, s.FeedFails, s.SubscribeAt = true, true, 0, 0
	s.FedSeq, s.FedEpoch, s.Owed, s.OwedEpoch, s.OwedBy = 0, "", 0, "", 0
	s.Fails, s.NotBefore, s.Wake, s.Told = 0, 0, 0, 0
	s.ClaimAt = max(s.ClaimAt, 0)
	s.Sent, s.Beaten, s.Deadline = max(s.Sent, -c.Lease), max(s.Beaten, -c.Heartbeat), max(s.Deadline, 0)
	if s.Op != Claim && s.Op != Beat {
		s.OpTerm, s.OpSeq, s.OpEpoch, s.Sent = 0, 0, "", 0
	}
	if !s.Leading {
		s.Term, s.Deadline, s.Beaten = 0, 0, 0
	}
	if !s.Loose {
		s.LooseSeq, s.LooseEpoch = 0, ""
	}
	return s
}

// units are times of the model: heartbeat, lease, and the wait for a silent leader.
func units(lease, wait time.Duration) Config {
	return Config{Heartbeat: 1, Lease: lease, ElectionMin: wait, ElectionMax: wait, Kappa: 2, Create: true, KeepLeading: false}
}

func (m model) safe(t *testing.T) {
	begin := time.Now()
	states, trace := m.check()
	require.Empty(t, trace, strings.Join(trace, "\n"))
	how := "all of"
	if m.limit > 0 && states >= m.limit {
		how = "the first"
	}
	t.Logf("no violation in %s %d states, %v", how, states, time.Since(begin).Round(time.Millisecond))
}

func TestModel(t *testing.T) {
	right := units(2, 4)
	for name, m := range map[string]model{
		"Two":             {cfg: right, nodes: 2, writes: 2},
		"TwoNominate":     {cfg: right, nodes: 2, writes: 2, marks: 1, limit: 15_000},
		"TwoLateRequests": {cfg: right, nodes: 2, writes: 2, late: true, limit: 15_000},
		"TwoBeat":         {cfg: right, nodes: 2, writes: 3, limit: 15_000},
		"TwoRelease":      {cfg: right, nodes: 2, writes: 2, resign: true, feeds: true, limit: 15_000},
		"TwoLose":         {cfg: right, nodes: 2, writes: 2, losses: 1, limit: 15_000},
		"TwoForge":        {cfg: right, nodes: 2, writes: 2, hints: true, limit: 15_000},
	} {
		t.Run(name, m.safe)
	}
}

func TestModelLarge(t *testing.T) {
	if !*large {
		t.Skip("takes long: run with -model.large")
	}
	right := units(2, 4)
	for name, m := range map[string]model{
		"TwoNominate":     {cfg: right, nodes: 2, writes: 2, marks: 1},
		"TwoLateRequests": {cfg: right, nodes: 2, writes: 2, late: true},
		"TwoRelease":      {cfg: right, nodes: 2, writes: 2, resign: true, feeds: true},
		"TwoLose":         {cfg: right, nodes: 2, writes: 2, losses: 1},
		"TwoBeat":         {cfg: right, nodes: 2, writes: 3},
		"TwoForge":        {cfg: right, nodes: 2, writes: 2, hints: true},
		"TwoForgeMore":    {cfg: right, nodes: 2, writes: 4, feeds: true, hints: true, limit: 5_000_000},
		"TwoAll":          {cfg: right, nodes: 2, writes: 3, late: true, resign: true, feeds: true, marks: 1, losses: 1, limit: 5_000_000},
		"Three":           {cfg: right, nodes: 3, writes: 2, limit: 5_000_000},
		"LongerLease":     {cfg: units(3, 6), nodes: 2, writes: 4, late: true, limit: 5_000_000},
	} {
		t.Run(name, m.safe)
	}
}

// TestModelFindsWhatIsWrong: rules that are known to be unsafe are found to be.
func TestModelFindsWhatIsWrong(t *testing.T) {
	short := units(3, 4)
	short.Kappa = 1 // as if clocks did not drift
	for name, m := range map[string]model{
		"WaitTooShort":      {cfg: short, nodes: 2, writes: 3},
		"LeaseFromResponse": {cfg: units(2, 4), nodes: 2, writes: 3, fromResponse: true},
		"NoCompareAndSet":   {cfg: units(2, 4), nodes: 2, writes: 3, upsert: true},
		"Leaderfeed":        {cfg: units(2, 4), nodes: 2, writes: 3, upsert: true, atOnce: true},
		"BelieveHints":      {cfg: units(2, 4), nodes: 2, writes: 3, hints: true, believe: true},
	} {
		t.Run(name, func(t *testing.T) {
			states, trace := m.check()
			require.NotEmpty(t, trace, "no violation in %d states", states)
			require.Regexp(t, "two lead|leads with term", trace[len(trace)-1])
			t.Logf("found after %d states, in %d moves:\n\t%s", states, len(trace), strings.Join(trace, "\n\t"))
		})
	}
}
