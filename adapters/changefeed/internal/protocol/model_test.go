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

// The model checker tries every order of events, breadth first. It calls Step, as the runtime does. Time
// advances in whole units, and between two events each candidate's clock advances by one or two units.
// Otherwise events are not restricted:
//
//   - A request is executed at any time, or never. Its response arrives at any time, or is lost. The
//     candidate gives up at any time, after which the request may still be executed.
//   - Feeds and reads return any state that the record has ever had, in any order.
//   - Feeds fail, candidates resign, a transfer target is named, and the record is lost.
//
// Only the number of writes is limited. So the number of states is finite, and the checker visits all
// of them, unless the model has a limit.
//
//	go test ./adapters/changefeed/internal/protocol -run Model -model.large -timeout 2h -v

var large = flag.Bool("model.large", false, "check larger models, which takes hours and gigabytes")

const maxCandidates, maxWrites = 3, 5

// model describes what the checker explores.
type model struct {
	cfg         Config
	candidates  int
	writes      int   // writes is the greatest number of writes after the first record.
	lateWrites  bool  // lateWrites means that requests may be executed after the candidate has given up.
	resigns     bool  // resigns lets candidates resign.
	feedsFail   bool  // feedsFail lets feeds fail.
	forgedHints bool  // forgedHints adds messages that any client could send.
	listens     bool  // listens means that leaders, if another candidate is the transfer target, lead on until they resign.
	transfers   uint8 // transfers is the number of transfer requests.
	losses      uint8 // losses is how often the record is lost.
	limit       int   // limit is the greatest number of visited states, or 0 for all.

	// Each of the following fields replaces a rule by a wrong one. The checker must find a violation if
	// one of them is set.
	upsert             bool // A write replaces any record, not only the expected one.
	leaseFromResponse  bool // Leases are measured from the response.
	leadBeforeResponse bool // A claim makes the candidate leader immediately, without a lease, as in leaderfeed.
	trustHints         bool // Hints count as records that were read.
}

// pending is a request between a candidate and the store. prev and next are the numbers of records in checker.records.
type pending struct {
	op         Op
	prev, next uint16
}

// node is a candidate with its requests.
type node struct {
	state    uint32 // state is the number of the State in checker.states. In it, the candidate's clock shows 0.
	request  pending
	executed bool    // executed reports whether request was executed and its response is in flight.
	late     pending // late is a request that the candidate has given up, and that may still be executed.
}

// system is the state of all candidates and of the store. Two equal systems have the same future.
type system struct {
	nodes     [maxCandidates]node
	history   [maxWrites + 1]uint16 // history contains all states that the record has had.
	states    uint8                 // states is the length of history.
	missing   bool                  // missing reports whether the record does not exist.
	epochs    uint8
	transfers uint8
	losses    uint8
	lastTerm  uint64 // lastTerm is the greatest term of a leadership.
}

type checker struct {
	model
	states   numbering[State]
	records  numbering[Record]
	steps    map[stepKey]stepResult
	advanced map[advanceKey]uint32

	visited  map[system]int32
	queue    []system
	previous []int32 // previous is the index of the system from which each system was reached.
	events   []string
	current  int32
	problem  string
}

// numbering numbers values, so that a system can contain a small number instead of a value.
type numbering[T comparable] struct {
	numbers map[T]uint32
	values  []T
}

func (n *numbering[T]) numberOf(v T) uint32 {
	number, ok := n.numbers[v]
	if !ok {
		if n.numbers == nil {
			n.numbers = map[T]uint32{}
		}
		number = uint32(len(n.values))
		n.numbers[v] = number
		n.values = append(n.values, v)
	}
	return number
}

// stepKey identifies a call of Step, and stepResult is its result.
type stepKey struct {
	candidate int
	state     uint32
	kind      InputKind
	outcome   Outcome
	record    uint16
}

type stepResult struct {
	state   uint32
	sends   bool
	request pending
	leads   uint64
}

type advanceKey struct {
	state uint32
	by    Time
}

var names = [maxCandidates]string{"a", "b", "c"}

// explore visits the states of the model. It returns their number, and the events that lead to a
// violation if there is one.
func (m model) explore() (states int, trace []string) {
	c := &checker{
		model: m, steps: map[stepKey]stepResult{}, advanced: map[advanceKey]uint32{},
		visited: map[system]int32{}, current: -1,
	}
	c.records.numberOf(Record{}) // number 0 means that the record does not exist
	var s system
	s.history[0] = uint16(c.records.numberOf(Record{Epoch: "0.1", Seq: 1, TTL: m.cfg.Lease}))
	s.states, s.epochs = 1, 1
	for i := range m.candidates {
		s.nodes[i].state = c.states.numberOf(canonicalState(State{}, &m.cfg))
	}
	c.visitSystem(s, "")
	for i := 0; i < len(c.queue) && c.problem == "" && (m.limit == 0 || i < m.limit); i++ {
		c.current = int32(i)
		c.expand(c.queue[i])
	}
	if c.problem == "" {
		return len(c.queue), nil
	}
	trace = []string{c.problem}
	for at := c.current; at > 0; at = c.previous[at] {
		trace = append(trace, c.events[at])
	}
	slices.Reverse(trace)
	return len(c.queue), trace
}

// visitSystem adds a system to the queue, unless it was visited before.
func (c *checker) visitSystem(s system, event string) {
	if _, ok := c.visited[s]; ok {
		return
	}
	leaders := 0
	for i := range c.candidates {
		if state := &c.states.values[s.nodes[i].state]; state.Leading && state.Deadline-c.cfg.Guard > 0 {
			leaders++
		}
	}
	if leaders > 1 && c.problem == "" {
		c.problem = event + ": two candidates are leaders"
		return
	}
	c.visited[s] = int32(len(c.queue))
	c.queue, c.previous, c.events = append(c.queue, s), append(c.previous, c.current), append(c.events, event)
}

// The descriptions of the events of each candidate. They are computed once, because they are used for each state.
var (
	eventTick, eventFeedDown      = forEach("is woken"), forEach("has no feed")
	eventResign, eventMissing     = forEach("resigns"), forEach("observes that there is no record")
	eventGivesUp, eventGivesUpOne = forEach("gives up"), forEach("gives up, and its request may be executed later")
	eventResponse, eventTransfer  = forEach("receives the response to its write"), forEach("is named as transfer target")
)

func forEach(event string) (events [maxCandidates]string) {
	for i, name := range names {
		events[i] = name + " " + event
	}
	return events
}

// expand visits all systems that can follow s.
func (c *checker) expand(s system) {
	c.advanceClocks(s)
	for i := range c.candidates {
		state := c.states.values[s.nodes[i].state]
		c.step(s, i, Tick, OK, 0, eventTick[i])
		for _, r := range s.history[:s.states] {
			if rec := &c.records.values[r]; !state.Known || rec.Epoch != state.Current.Epoch || rec.Seq > state.Current.Seq {
				c.step(s, i, Observed, OK, r, names[i]+" observes "+c.describe(r))
			}
		}
		if s.losses > 0 && !state.Missing {
			c.step(s, i, Missed, OK, 0, eventMissing[i])
		}
		if c.resigns && !state.Leaving && state.Known {
			c.step(s, i, Resign, OK, 0, eventResign[i])
		}
		if c.feedsFail {
			c.step(s, i, FeedDown, OK, 0, eventFeedDown[i])
		}
		if c.forgedHints && state.Known {
			c.forgeHints(s, i, state.Current)
		}
		c.advanceRequests(s, i)
	}
	if s.missing || int(s.states) > c.writes {
		return
	}
	latest := c.records.values[s.history[s.states-1]]
	for i := range c.candidates {
		if c.transfers > s.transfers {
			next, r := s, latest
			r.Nominee, r.Seq = names[i], r.Seq+1
			next.transfers++
			next.write(uint16(c.records.numberOf(r)))
			c.visitSystem(next, eventTransfer[i])
		}
	}
	if c.losses > s.losses {
		s.missing = true
		s.losses++
		c.visitSystem(s, "the record is lost")
	}
}

// observedHint represents the input Observed with Hint set, in the keys of steps. It is greater than all kinds of the
// protocol, which has no separate kind for that.
const observedHint = InputKind(100)

// forgeHints sends candidate i messages that any client could send, which say that the record known was written again,
// with the Seq of any later state or the next one, or that it was released.
func (c *checker) forgeHints(s system, i int, known Record) {
	released := known
	released.Leader, released.Session, released.TTL = "", "", 0
	for seq := known.Seq; seq <= uint64(s.states)+1; seq++ {
		for _, forged := range []Record{known, released} {
			forged.Seq = seq
			r := uint16(c.records.numberOf(forged))
			c.step(s, i, observedHint, OK, r, names[i]+" receives a forged message: "+c.describe(r))
		}
	}
}

func (c *checker) describe(r uint16) string {
	rec := &c.records.values[r]
	return fmt.Sprintf("seq %d (epoch %s, leader %q, term %d)", rec.Seq, rec.Epoch, rec.Leader, rec.Term)
}

// advanceClocks visits the systems in which each clock has advanced by one or two units. It omits the one in which all
// have advanced by two, because that can be reached by one unit twice.
func (c *checker) advanceClocks(s system) {
	for speeds := range 1<<c.candidates - 1 {
		next := s
		for i := range c.candidates {
			next.nodes[i].state = c.advanceClock(s.nodes[i].state, Time(1+speeds>>i&1))
		}
		c.visitSystem(next, eventTime[speeds])
	}
}

var eventTime = [1 << maxCandidates]string{
	"time", "time, twice for a", "time, twice for b", "time, twice for a, b",
	"time, twice for c", "time, twice for a, c", "time, twice for b, c",
}

// advanceClock returns the state of a candidate after d. In the new state, the candidate's clock shows
// 0 again.
func (c *checker) advanceClock(number uint32, d Time) uint32 {
	key := advanceKey{number, d}
	if next, ok := c.advanced[key]; ok {
		return next
	}
	s := c.states.values[number]
	for _, t := range []*Time{&s.ClaimAt, &s.SentAt, &s.Deadline, &s.RenewedAt} {
		*t -= d
	}
	next := c.states.numberOf(canonicalState(s, &c.cfg))
	c.advanced[key] = next
	return next
}

// advanceRequests visits the systems that follow from the requests of a candidate.
func (c *checker) advanceRequests(s system, i int) {
	n := &s.nodes[i]
	if n.late.op != None {
		c.execute(s, i, n.late, true)
	}
	switch {
	case n.request.op == None:
		return
	case n.executed:
		c.step(s, i, Responded, OK, n.request.next, eventResponse[i])
	default:
		c.execute(s, i, n.request, false)
	}
	if n.request.op == Read || n.request.op == Create {
		return // The loss of a Read or Create is the same as if it is not executed yet.
	}
	next := s
	if c.lateWrites && !n.executed && n.late.op == None {
		next.nodes[i].late = n.request
		c.step(next, i, Responded, Unknown, 0, eventGivesUpOne[i])
	}
	c.step(s, i, Responded, Unknown, 0, eventGivesUp[i])
}

// execute executes a request at the store. A request that changes nothing is answered immediately: a later response need
// not be explored, because reads return states of any age.
func (c *checker) execute(s system, i int, r pending, late bool) {
	latest := &c.records.values[s.history[s.states-1]]
	prev := &c.records.values[r.prev]
	mayWrite := int(s.states) <= c.writes
	switch {
	case r.op == Read:
		if s.losses > 0 {
			c.step(s, i, Responded, NoRecord, 0, names[i]+" reads that there is no record")
		}
		for _, old := range s.history[:s.states] {
			c.step(s, i, Responded, OK, old, names[i]+" reads "+c.describe(old))
		}
	case r.op == Create && s.missing && mayWrite:
		rec := c.records.values[r.next]
		s.missing = false
		s.epochs++
		rec.Epoch = fmt.Sprint("0.", s.epochs)
		rec.Term = max(rec.Term, 100*uint64(s.epochs)) // represents the wall clock, which advances between creations
		s.write(uint16(c.records.numberOf(rec)))
		c.step(s, i, Responded, OK, 0, names[i]+" creates the record")
	case r.op == Create && !s.missing:
		c.step(s, i, Responded, OK, 0, names[i]+" finds an existing record")
	case r.op == Create:
	case s.missing, !c.upsert && (latest.Seq != prev.Seq || latest.Epoch != prev.Epoch):
		if late {
			s.nodes[i].late = pending{}
			c.visitSystem(s, names[i]+"'s late request fails")
			return
		}
		if s.missing {
			c.step(s, i, Responded, NoRecord, 0, names[i]+" finds no record to replace")
		} else {
			c.step(s, i, Responded, Conflict, 0, names[i]+" finds a conflict")
		}
	case mayWrite:
		s.write(r.next)
		if late {
			s.nodes[i].late = pending{}
		} else {
			s.nodes[i].executed = true
		}
		c.visitSystem(s, names[i]+" writes "+c.describe(r.next))
	}
}

// write appends a new state of the record to the history.
func (s *system) write(r uint16) {
	s.history[s.states] = r
	s.states++
}

// step visits the system that follows from an input of candidate i.
func (c *checker) step(s system, i int, kind InputKind, outcome Outcome, record uint16, event string) {
	key := stepKey{i, s.nodes[i].state, kind, outcome, record}
	result, ok := c.steps[key]
	if !ok {
		result = c.callStep(key)
		c.steps[key] = result
	}
	n := &s.nodes[i]
	if n.state == result.state && kind != Responded {
		return // The input has changed nothing.
	}
	n.state = result.state
	if kind == Responded {
		n.request, n.executed = pending{}, false
	}
	if result.sends {
		n.request = result.request
	}
	if result.leads > 0 {
		if result.leads <= s.lastTerm && c.problem == "" {
			c.problem = fmt.Sprintf("%s: becomes leader with term %d after %d", event, result.leads, s.lastTerm)
			return
		}
		s.lastTerm = result.leads
	}
	c.visitSystem(s, event)
}

func (c *checker) callStep(key stepKey) (result stepResult) {
	cfg := c.cfg
	cfg.ID, cfg.Session = names[key.candidate], names[key.candidate]
	in := Input{Kind: key.kind, Outcome: key.outcome, Record: c.records.values[key.record]}
	if key.kind == observedHint {
		in.Kind, in.Hint = Observed, !c.trustHints
	}
	in.Listens = c.listens
	in.ByFeed = in.Kind == Observed || in.Kind == Missed
	s := c.states.values[key.state]
	if c.leaseFromResponse && in.Kind == Responded {
		s.SentAt = 0
	}
	s, actions := Step(&cfg, s, in, 0)
	for _, a := range actions {
		switch a.Kind {
		case Send:
			result.sends, result.request = true, pending{a.Op, uint16(c.records.numberOf(a.Prev)), uint16(c.records.numberOf(a.Record))}
			if a.Op == Claim && c.leadBeforeResponse {
				s.Leading, s.Term, s.Deadline = true, a.Record.Term, 1000
			}
		case Lead:
			result.leads = a.Term
		}
	}
	result.state = c.states.numberOf(canonicalState(s, &c.cfg))
	return result
}

// canonicalState removes from s what cannot influence the future, such as how long ago something happened, so that fewer
// states are different. It also removes pauses and the state of the feed: in the model, pauses end at any time, and a
// failed feed works again immediately.
func canonicalState(s State, cfg *Config) State {
	s.FeedOpen, s.FeedWorks, s.FeedFailures, s.SubscribeAt, s.FeedDeadline = true, true, 0, 0, 0
	s.FeedSeq, s.FeedEpoch, s.ExpectedSeq, s.ExpectedEpoch, s.ExpectedBy = 0, "", 0, "", 0
	s.Failures, s.RetryAt, s.WakeAt, s.ReportedTerm = 0, 0, 0, 0
	s.ClaimAt = max(s.ClaimAt, 0)
	s.TTLRepeated = false // The model does not edit TTLs.
	if !s.Known {
		s.TTL = 0
	}
	s.SentAt, s.RenewedAt, s.Deadline = max(s.SentAt, -cfg.Lease), max(s.RenewedAt, -cfg.Heartbeat), max(s.Deadline, 0)
	if s.Op != Claim && s.Op != Heartbeat {
		s.OpTerm, s.OpSeq, s.OpEpoch, s.SentAt = 0, 0, "", 0
	}
	if !s.Leading {
		s.Term, s.Deadline, s.RenewedAt = 0, 0, 0
	}
	if !s.Unresolved {
		s.UnresolvedSeq, s.UnresolvedEpoch = 0, ""
	}
	return s
}

// configInUnits returns a configuration in units of the model, with a heartbeat of one unit.
func configInUnits(lease, wait time.Duration) Config {
	return Config{Heartbeat: 1, Lease: lease, ElectionMin: wait, ElectionMax: wait, Kappa: 2, Create: true, KeepLeading: false}
}

// requireSafe fails the test if two candidates can be leaders at the same time, or if terms do not
// increase.
func (m model) requireSafe(t *testing.T) {
	begin := time.Now()
	states, trace := m.explore()
	require.Empty(t, trace, strings.Join(trace, "\n"))
	which := "all"
	if m.limit > 0 && states >= m.limit {
		which = "the first"
	}
	t.Logf("no violation in %s %d states, %v", which, states, time.Since(begin).Round(time.Millisecond))
}

// TestModel_SatisfiesInvariants checks that no order of events leads to two leaders at the same time, or to a
// leadership whose term does not increase.
func TestModel_SatisfiesInvariants(t *testing.T) {
	cfg := configInUnits(2, 4)
	for name, m := range map[string]model{
		"TwoCandidates":  {cfg: cfg, candidates: 2, writes: 2, limit: 60_000},
		"TwoTransfer":    {cfg: cfg, candidates: 2, writes: 2, transfers: 1, limit: 15_000},
		"TwoListen":      {cfg: cfg, candidates: 2, writes: 2, transfers: 1, resigns: true, listens: true, limit: 15_000},
		"TwoLateWrites":  {cfg: cfg, candidates: 2, writes: 2, lateWrites: true, limit: 15_000},
		"TwoThreeWrites": {cfg: cfg, candidates: 2, writes: 3, limit: 15_000},
		"TwoResign":      {cfg: cfg, candidates: 2, writes: 2, resigns: true, feedsFail: true, limit: 15_000},
		"TwoRecordLost":  {cfg: cfg, candidates: 2, writes: 2, losses: 1, limit: 15_000},
		"TwoForgedHints": {cfg: cfg, candidates: 2, writes: 2, forgedHints: true, limit: 15_000},
	} {
		t.Run(name, m.requireSafe)
	}
}

// TestModel_SatisfiesInvariantsInLargeModels checks the same as TestModel_SatisfiesInvariants in models with more writes
// and candidates, which takes hours.
func TestModel_SatisfiesInvariantsInLargeModels(t *testing.T) {
	if !*large {
		t.Skip("takes hours: run with -model.large")
	}
	cfg := configInUnits(2, 4)
	for name, m := range map[string]model{
		"TwoCandidates":      {cfg: cfg, candidates: 2, writes: 2},
		"TwoTransfer":        {cfg: cfg, candidates: 2, writes: 2, transfers: 1},
		"TwoListen":          {cfg: cfg, candidates: 2, writes: 2, transfers: 1, resigns: true, listens: true},
		"TwoLateWrites":      {cfg: cfg, candidates: 2, writes: 2, lateWrites: true},
		"TwoResign":          {cfg: cfg, candidates: 2, writes: 2, resigns: true, feedsFail: true},
		"TwoRecordLost":      {cfg: cfg, candidates: 2, writes: 2, losses: 1},
		"TwoThreeWrites":     {cfg: cfg, candidates: 2, writes: 3},
		"TwoForgedHints":     {cfg: cfg, candidates: 2, writes: 2, forgedHints: true},
		"TwoMoreForgedHints": {cfg: cfg, candidates: 2, writes: 4, feedsFail: true, forgedHints: true, limit: 5_000_000},
		"TwoAll": {
			cfg: cfg, candidates: 2, writes: 3, lateWrites: true, resigns: true, feedsFail: true,
			transfers: 1, losses: 1, limit: 5_000_000,
		},
		"ThreeCandidates": {cfg: cfg, candidates: 3, writes: 2, limit: 5_000_000},
		"LongerLease":     {cfg: configInUnits(3, 6), candidates: 2, writes: 4, lateWrites: true, limit: 5_000_000},
	} {
		t.Run(name, m.requireSafe)
	}
}

// TestModel_FindsUnsafeRules checks that the model checker finds a violation for each rule that is
// replaced by an unsafe one.
func TestModel_FindsUnsafeRules(t *testing.T) {
	shortWait := configInUnits(3, 4)
	shortWait.Kappa = 1 // Kappa 1 ignores that clocks run at different rates.
	for name, m := range map[string]model{
		"WaitTooShort":      {cfg: shortWait, candidates: 2, writes: 3},
		"LeaseFromResponse": {cfg: configInUnits(2, 4), candidates: 2, writes: 3, leaseFromResponse: true},
		"NoCompareAndSet":   {cfg: configInUnits(2, 4), candidates: 2, writes: 3, upsert: true},
		"Leaderfeed":        {cfg: configInUnits(2, 4), candidates: 2, writes: 3, upsert: true, leadBeforeResponse: true},
		"TrustHints":        {cfg: configInUnits(2, 4), candidates: 2, writes: 3, forgedHints: true, trustHints: true},
	} {
		t.Run(name, func(t *testing.T) {
			states, trace := m.explore()
			require.NotEmpty(t, trace, "no violation in %d states", states)
			require.Regexp(t, "two candidates are leaders|becomes leader with term", trace[len(trace)-1])
			t.Logf("found after %d states, by %d events:\n\t%s", states, len(trace), strings.Join(trace, "\n\t"))
		})
	}
}
