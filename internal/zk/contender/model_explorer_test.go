package contender

import (
	"fmt"
	"runtime/debug"
	"testing"
	"time"
)

// scenario describes an initial state and the events that may happen.
type scenario struct {
	name    string
	members int
	conns   int
	// shared puts all contenders on the connection 0.
	shared      bool
	config      func(*Config) // changes the configuration of an election; may be nil
	budget      [faults]uint8
	lagging     uint8 // the connections whose servers may lag behind, as bits
	timers      uint8 // the timers that expire, as bits, in addition to defaultTimers
	stamp       bool
	predicts    bool // a stamped create predicts the predecessor
	firstNumber int32
	countsWakes bool
	// permits is the number of contenders that have their turn at the same time, by a policy that is
	// like that of a semaphore; 0 for an exclusive lock.
	permits int
	// interrupted means that the client that deletes the queue only marks it as ended.
	interrupted bool
	// succession lets only the first contender be asked to leave, and operators and breaks only concern the others.
	succession bool
	// settled is the number of contenders that have joined before anything else happens.
	settled int
	// foreign are the znodes of other clients at the beginning: 'f' for a contender, 'p' for one
	// with a plain name, 'n' for a persistent znode with such a name.
	foreign string
	full    bool // only the complete exploration includes the scenario
	short   bool // the exploration ends after shortLimit states
	// limit is the number of states after which the exploration fails; 0 for none.
	limit int
	// steps limits the number of actions of a schedule; 0 for no limit.
	steps int
}

// defaultTimers contains the timers that may expire in every scenario. ReasonTimer is not among them, because it
// only repeats a report.
const defaultTimers = 1<<DoubtTimer | 1<<PrepareTimer | 1<<OwnTimer

// initial returns the initial state.
func (s *scenario) initial(tracing bool) *model {
	w := &model{scenario: s, tree: &tree{queue: 1}, creates: 1, leader: -1, tracing: tracing}
	w.sessions = []session{{id: foreignSession, conn: -1, alive: true}}
	for _, kind := range s.foreign {
		owner := int64(foreignSession)
		if kind == 'n' {
			owner = 0
		}
		n := w.newForeign(kind != 'f', owner)
		w.tree.nodes = append(w.tree.nodes, n)
	}
	w.base = w.tree
	for i := range s.conns {
		w.conns[i] = &conn{epoch: 100, up: true, tree: w.tree}
		id := w.newSession(i)
		w.conn(i).session = id
	}
	for i := range s.members {
		m := &member{conn: i}
		if s.shared {
			m.conn = 0
		}
		cfg := &Config{Dir: "/queue", Tombstone: tombstone, QueueCzxid: 1, QueueSession: w.conns[m.conn].session, Lookahead: 2}
		if s.config != nil {
			s.config(cfg)
		}
		if s.permits > 0 {
			cfg.Admit = admitFirst(s.permits)
		}
		m.machine = New(cfg)
		w.members[i] = m
	}
	for i := range s.members {
		if w.step(i, &Input{Kind: Start}); i < s.settled {
			w.settle()
		}
	}
	w.normalize()
	w.budget = s.budget
	w.key(nil)
	return w
}

// settle executes fair actions until there are none, or until a violation. It returns false if they do not come to
// an end.
func (w *model) settle() bool {
	var list []action
	for range 1000 {
		w.key(nil)
		list = w.actions(list[:0])
		k := 0
		for k < len(list) && !list[k].fair {
			k++
		}
		if k == len(list) {
			return true
		}
		w.do(list[k])
		if w.violation != "" {
			return true
		}
	}
	return false
}

// runFair examines one of sampling states.
const sampling = 64

// runFair executes fair actions until there are none, and checks the state that this leads to.
func (w *model) runFair() (violation string) {
	w = w.fork()
	if !w.settle() {
		return "the fair steps from here do not come to an end"
	}
	if w.violation == "" {
		w.verifyQuiet()
	}
	return w.violation
}

// visit is how a state was reached.
type visit struct {
	parent *visit // nil for the initial state
	action action
	depth  int
}

// exploration is the result of an exploration. depth is the largest number of actions that led to a
// state.
type exploration struct {
	states, transitions, depth int
	// violation is "" if there is none. Otherwise schedule leads to it. It is the shortest one unless
	// the scenario is large.
	violation string
	steps     int
	schedule  string
}

// open is a state whose actions were not executed yet.
type open struct {
	state *model
	visit *visit
}

// explore visits all states of a scenario. Breadth first, it finds the shortest schedule that leads to
// a violation. But the open states of a large scenario do not fit into memory at the same time, so it
// explores those depth first.
func (s *scenario) explore() (e exploration) {
	garbage := 400 // collect seldom: few states live long, so the heap stays small
	if s.full {
		garbage = 50 // most of the memory contains the keys of visited states
	}
	defer debug.SetGCPercent(debug.SetGCPercent(garbage))
	root := open{s.initial(false), &visit{}}
	k, scratch := root.state.key(nil)
	visited := map[key]struct{}{k: {}}
	var list []action
	found := func(at *visit, violation string) exploration {
		e.violation, e.states = violation, len(visited)
		e.replay(s, at)
		return e
	}
	if root.state.violation != "" {
		return found(root.visit, root.state.violation)
	}
	for todo := []open{root}; len(todo) > 0; {
		var o open
		if last := len(todo) - 1; s.full {
			o, todo[last], todo = todo[last], open{}, todo[:last]
		} else {
			o, todo[0], todo = todo[0], open{}, todo[1:]
		}
		e.depth = max(e.depth, o.visit.depth)
		if s.steps > 0 && o.visit.depth == s.steps {
			continue
		}
		list = o.state.actions(list[:0])
		quiet := true
		for _, a := range list {
			quiet = quiet && !a.fair
			e.transitions++
			w := o.state.fork()
			w.try(a)
			k, scratch = w.key(scratch)
			if _, known := visited[k]; known && w.violation == "" {
				continue
			}
			visited[k] = struct{}{}
			at := &visit{o.visit, a, o.visit.depth + 1}
			if w.violation != "" {
				return found(at, w.violation)
			}
			todo = append(todo, open{w, at})
			if k[0]%sampling == 0 {
				if violation := w.runFair(); violation != "" {
					return found(at, violation)
				}
			}
		}
		if quiet {
			if o.state.verifyQuiet(); o.state.violation != "" {
				return found(o.visit, o.state.violation)
			}
		}
		if s.short && len(visited) > shortLimit {
			break
		}
		if s.limit > 0 && len(visited) > s.limit {
			return found(o.visit, fmt.Sprintf("there are more than %d states", s.limit))
		}
	}
	e.states = len(visited)
	return e
}

// try executes an action. A panic is a violation.
func (w *model) try(a action) {
	defer func() {
		if r := recover(); r != nil {
			w.fail("panic: %v", r)
		}
	}()
	w.do(a)
}

// replay finds the schedule that leads to a state.
func (e *exploration) replay(s *scenario, at *visit) {
	var path []action
	for ; at.parent != nil; at = at.parent {
		path = append(path, at.action)
	}
	w := s.initial(false)
	w.tracing = true
	for i := len(path) - 1; i >= 0; i-- {
		w = w.fork()
		w.try(path[i])
		if w.violation == "" {
			w.key(nil)
		}
	}
	e.steps, e.schedule = len(path), schedule(w.trace)
}

// run explores a scenario and fails the test at the first violation.
func (s *scenario) run(t *testing.T) {
	t.Helper()
	start := time.Now()
	e := s.explore()
	t.Logf("%d states, %d transitions, depth %d, %.1fs", e.states, e.transitions, e.depth, time.Since(start).Seconds())
	if e.violation != "" {
		t.Fatalf("%s\nafter %d steps:\n%s", e.violation, e.steps, e.schedule)
	}
}
