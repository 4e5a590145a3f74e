package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	node     = "/election"
	register = "/register" // what leaders write to
)

// world is one schedule under way. Only the goroutine that plays the schedule
// uses its fields, but for the history.
type world struct {
	*history
	schedule
	ensemble   *zktest.Ensemble
	operator   *zk.Conn
	links      []*link
	candidates []*candidate
	hooks      []*zktest.Hook
	heals      []*time.Timer
	down       []atomic.Bool // servers that were stopped
	busy       sync.WaitGroup
	ended      bool        // EndElection was called
	endAsked   atomic.Bool // and has not returned yet
	closing    atomic.Bool
}

// link is a connection that candidates use.
type link struct {
	conn   *zk.Conn
	name   string
	closed bool
}

// candidate is one candidacy. mu guards what its goroutine tells.
type candidate struct {
	name string
	link *link

	mu       sync.Mutex
	election *leaderelection.Election
	session  int64    // in which it began
	watched  []string // own znodes and predecessors
	last     leaderelection.Status
	over     bool
	err      error
	resigned bool
}

// play runs a schedule in a bubble and returns its history. With a log the
// requests that the servers have seen are part of it.
func play(t *testing.T, s schedule, withLog bool) (h *history) {
	synctest.Test(t, func(t *testing.T) {
		h = newHistory()
		limit := 0
		if withLog {
			limit = 1 << 16
		}
		w := &world{history: h, schedule: s, down: make([]atomic.Bool, s.servers)}
		w.ensemble = zktest.Cluster(t, s.servers,
			zktest.WithTick(s.tick), zktest.WithSessionTimeouts(s.timeout, time.Minute),
			zktest.WithSyncLimit(5*s.tick), zktest.WithLogLimit(limit))
		w.begin()
		for _, step := range s.steps {
			w.pass(step.wait)
			w.do(step)
			w.check()
		}
		w.finish()
		if withLog {
			for _, e := range w.ensemble.Server(0).Log() {
				if e.Op != zktest.OpPing {
					h.lines = append(h.lines, line{e.Time.Sub(h.start), "    server %d: %v", []any{e.Server, e}})
				}
			}
			slices.SortStableFunc(h.lines, func(a, b line) int { return int(a.at - b.at) })
		}
	})
	return h
}

func (w *world) begin() {
	w.each(func(s *zktest.Server) { s.Delay(zktest.BothWays, w.latency) })
	conn, _, err := w.ensemble.Connect(time.Minute)
	for _, path := range []string{node, register} {
		if err == nil {
			_, err = conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		}
	}
	if err != nil {
		w.violation("cannot begin: %v", err)
	}
	w.operator = conn
}

func (w *world) each(f func(*zktest.Server)) {
	for i := range w.ensemble.Len() {
		f(w.ensemble.Server(i))
	}
}

// pass lets time pass, and then what happens at that instant happen.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) do(s step) {
	switch s.kind {
	case join:
		w.join(s.who)
		return
	case resign:
		if c := w.choose(s.who); c != nil {
			w.resign(c)
		}
		return
	case dropAll, partition, pause, stop, refuse:
		w.toServer(s)
		return
	}
	c := w.choose(s.who)
	if c == nil {
		return
	}
	w.note("%s: %v", c.name, s)
	session := c.link.conn.SessionID()
	if session == 0 {
		return
	}
	switch s.kind {
	case cutReply, cutRequest:
		op := []zktest.Op{zktest.OpCreate, zktest.OpCreate, zktest.OpMulti, zktest.OpDelete, zktest.OpGetData, zktest.OpGetChildren2, zktest.OpSync, zktest.OpExists, zktest.OpAny}[s.n%9]
		match := zktest.Match{Op: op, Session: session, Nth: 1 + s.n/10%3}
		set := w.ensemble.Server(0).After
		if s.kind == cutRequest {
			set = w.ensemble.Server(0).Before
		}
		w.hooks = append(w.hooks, set(match, zktest.Cut))
	case drop:
		w.each(func(s *zktest.Server) { s.DropConnections(session) })
	case blackhole:
		direction := []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.BothWays}[s.n%3]
		w.each(func(s *zktest.Server) { s.Blackhole(direction, session) })
		w.later(s.last, func() { w.heal(session) })
	case slow:
		w.each(func(x *zktest.Server) { x.Delay(zktest.BothWays, s.last/8, session) })
		w.later(2*s.last, func() { w.heal(session) })
	case strand:
		w.each(func(s *zktest.Server) { s.Partition(session) })
		w.later(s.last, func() { w.heal(session) })
	case expire:
		w.excuseAll(c.link)
		_ = w.ensemble.Server(0).ExpireSession(session)
	case operatorDelete:
		if id := c.id(); id != "" {
			w.excuse(id)
			w.busy.Go(func() {
				err := w.operator.Delete(id, -1)
				for !w.closing.Load() && err != nil && !errors.Is(err, zk.ErrNoNode) {
					time.Sleep(10 * time.Millisecond)
					err = w.operator.Delete(id, -1)
				}
				w.taken(id)
				w.note("operator has deleted the znode of %s: %v", c.name, err)
			})
		}
	case closeConn:
		w.excuseAll(c.link)
		c.link.closed = true
		c.link.conn.Close()
	}
}

func (w *world) toServer(s step) {
	i := s.who % w.ensemble.Len()
	server := w.ensemble.Server(i)
	w.note("server %d: %v", i, s)
	switch s.kind {
	case dropAll:
		server.DropConnections()
	case partition:
		server.Partition()
		w.later(s.last, func() { w.healServer(server) })
	case pause:
		server.Pause()
		w.later(s.last, server.Resume)
	case stop:
		w.down[i].Store(true)
		server.Stop()
		w.later(s.last, func() {
			server.Restart(zktest.KeepTree)
			w.down[i].Store(false)
		})
	case refuse:
		server.Refuse(true)
		w.later(s.last, func() { server.Refuse(false) })
	}
}

// later ends a fault, unless the end of the schedule does.
func (w *world) later(d time.Duration, f func()) {
	w.heals = append(w.heals, time.AfterFunc(d, f))
}

func (w *world) heal(session int64) {
	w.each(func(s *zktest.Server) {
		s.Heal(session)
		s.Delay(zktest.BothWays, w.latency, session)
	})
}

func (w *world) healServer(s *zktest.Server) {
	s.Heal()
	s.Delay(zktest.BothWays, w.latency)
}

func (w *world) healAll() {
	for _, t := range w.heals {
		t.Stop()
	}
	for _, h := range w.hooks {
		h.Remove()
	}
	w.each(func(s *zktest.Server) {
		s.Refuse(false)
		s.Resume()
		if w.down[s.ID()].Load() {
			s.Restart(zktest.KeepTree)
		}
		w.healServer(s)
	})
	w.note("all faults are healed")
}

func (w *world) excuseAll(l *link) {
	for _, c := range w.candidates {
		if c.link == l {
			w.excuse(c.id())
		}
	}
}

// choose takes one of the candidates that take part.
func (w *world) choose(n int) *candidate {
	living := w.living()
	if len(living) == 0 {
		return nil
	}
	return living[n%len(living)]
}

func (w *world) living() (found []*candidate) {
	for _, c := range w.candidates {
		c.mu.Lock()
		if !c.over && !c.resigned {
			found = append(found, c)
		}
		c.mu.Unlock()
	}
	return found
}

func (c *candidate) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.election == nil {
		return ""
	}
	return c.election.ID()
}

// connection returns one to join over.
func (w *world) connection(n int) *link {
	if w.shared {
		open := slices.DeleteFunc(slices.Clone(w.links), func(l *link) bool { return l.closed })
		if len(open) >= 2 {
			return open[n%len(open)]
		}
	}
	conn, _, err := w.ensemble.ConnectFrom(n%w.servers, w.timeout, zk.WithMaxBufferSize(64<<10)) // by default 1.5 MB, cleared each time
	if err != nil {
		w.violation("cannot connect: %v", err)
	}
	l := &link{conn: conn, name: fmt.Sprintf("connection %d", len(w.links))}
	w.links = append(w.links, l)
	return l
}

func (w *world) join(n int) {
	if len(w.living()) >= w.schedule.candidates {
		return
	}
	c := &candidate{name: fmt.Sprintf("c%d", len(w.candidates)), link: w.connection(n)}
	w.candidates = append(w.candidates, c)
	w.note("%s: joins over %s", c.name, c.link.name)
	w.busy.Go(func() { w.stand(c) })
}

// stand is the program of one candidate.
func (w *world) stand(c *candidate) {
	options := []leaderelection.Option{leaderelection.WithClientName(c.name), leaderelection.WithSessionTimeout(w.told)}
	if w.rejoin {
		options = append(options, leaderelection.WithRejoin())
	}
	hooks := &hookLog{w: w, c: c}
	options = append(options, hooks.option())
	e, err := leaderelection.NewElection(c.link.conn, node, options...)
	c.mu.Lock()
	if err != nil {
		c.over, c.err = true, err
		c.mu.Unlock()
		w.note("%s: cannot take part: %v", c.name, err)
		if !errors.Is(err, leaderelection.ErrUnreachable) && !errors.Is(err, leaderelection.ErrConnClosed) && !errors.Is(err, leaderelection.ErrNoElection) {
			w.violation("%s: NewElection: %v", c.name, err)
		}
		return
	}
	c.election, c.session = e, c.link.conn.SessionID()
	resigned := c.resigned
	c.mu.Unlock()
	if resigned {
		_ = e.Resign()
	}
	returned := make(chan error, 1)
	go func() { returned <- e.ElectLeader() }()
	count := 0
	for s := range e.Status() {
		count++
		w.note("%s: %v", c.name, s)
		c.mu.Lock()
		if c.last.Err != nil {
			w.violation("%s: a status after the final one: %v", c.name, s)
		}
		c.last = s
		c.watched = append(c.watched, s.CandidateID, s.NowFollowing)
		c.mu.Unlock()
		if (s.Role == leaderelection.Leader) != (s.Leadership != nil) {
			w.violation("%s: role and leadership differ: %v", c.name, s)
		}
		if s.Leadership != nil {
			span := w.history.begin(c.name, s.CandidateID, s.Leadership)
			w.busy.Add(1)
			context.AfterFunc(s.Leadership.Context(), func() {
				w.end(span)
				w.note("%s: done: %v", c.name, s.Leadership.Err())
				w.busy.Done()
			})
			w.busy.Go(func() { w.lead(e, s.Leadership) })
		}
		if w.lazy && count%2 == 0 {
			time.Sleep(w.timeout / 5) // a reader that is busy with something else
		}
	}
	err = <-returned
	hooks.end()
	c.mu.Lock()
	c.over, c.err = true, err
	last := c.last
	c.mu.Unlock()
	w.note("%s: the candidacy is over: %v", c.name, err)
	if resigned && errors.Is(err, leaderelection.ErrCandidacyOver) {
		return // it resigned before it stood
	}
	if !errors.Is(last.Err, err) || (err == nil) != (last.Err == nil) {
		w.violation("%s: ElectLeader returned %v after the final status %v", c.name, err, last)
	}
	w.mayEnd(c, err)
}

// lead writes what only a leader may write: at once, and once more at a time at
// which it may have lost its leadership.
func (w *world) lead(e *leaderelection.Election, l *leaderelection.Leadership) {
	for range 2 {
		// Multi is bound to the candidate. One that rejoins may lead anew, and
		// this is done for an earlier leadership.
		if l.Err() != nil {
			return
		}
		written, err := e.Multi(&zk.SetDataRequest{Path: register, Data: strconv.AppendInt(nil, l.Token(), 10), Version: -1})
		if err == nil {
			w.wrote(l.Token(), written[0].Stat.Mzxid)
		}
		time.Sleep(w.timeout * 3 / 4)
	}
}

// mayEnd checks that there was a reason for the end of a candidacy.
func (w *world) mayEnd(c *candidate, err error) {
	c.mu.Lock()
	resigned := c.resigned
	c.mu.Unlock()
	ok := false
	switch {
	case err == nil:
		ok = resigned
	case errors.Is(err, leaderelection.ErrElectionOver):
		ok = w.ended
	case errors.Is(err, leaderelection.ErrCandidateDeleted):
		// Without an answer for a session timeout the reason of a znode's end
		// remains unknown, except to those who wait for ever.
		ok = w.isExcused(c.id()) || !w.rejoin && !w.hasNode(c.id())
	case errors.Is(err, leaderelection.ErrSessionExpired):
		ok = !w.rejoin
	case errors.Is(err, leaderelection.ErrConnClosed):
		ok = c.link.closed
	case errors.Is(err, leaderelection.ErrUnreachable):
		ok = !w.rejoin
	}
	if !ok {
		w.violation("%s: the candidacy ended for no reason: %v", c.name, err)
	}
}

// resignLimit is the promise of Resign.
const resignLimit = 2 * time.Second

func (w *world) resign(c *candidate) {
	w.note("%s: resigns", c.name)
	c.mu.Lock()
	c.resigned = true
	e := c.election
	c.mu.Unlock()
	if e == nil {
		return // it does when it takes part
	}
	w.busy.Go(func() {
		begin := time.Now()
		err := e.Resign()
		w.note("%s: has resigned: %v", c.name, err)
		if d := time.Since(begin); d > resignLimit {
			w.violation("%s: Resign took %v", c.name, d)
		}
		if err != nil && !errors.Is(err, leaderelection.ErrUnconfirmed) {
			w.violation("%s: Resign: %v", c.name, err)
		}
		if err == nil && w.hasNode(e.ID()) {
			w.violation("%s: Resign is confirmed, and %s is there", c.name, e.ID())
		}
	})
}

// check looks at this instant.
func (w *world) check() {
	synctest.Wait()
	var leading []string
	for _, s := range w.leading() {
		if !w.isExcused(s.id) {
			leading = append(leading, s.who)
		}
	}
	if len(leading) > 1 {
		w.violation("%v lead at once", leading)
	}
}

// bound is the time until somebody leads after the end of all faults: a session
// that is to expire, what the client library takes to come back (up to a second
// between two rounds of servers, and its own timeouts), and a proof.
func (w *world) bound() time.Duration { return 3*w.timeout + 2*w.tick + 4*time.Second }

// eventually waits for up to d until f holds, and reports what it says if not.
func (w *world) eventually(d time.Duration, what string, f func() string) {
	for end := w.now() + d; ; {
		synctest.Wait()
		problem := f()
		if problem == "" {
			return
		}
		if w.now() >= end {
			w.violation("%s after %v: %s", what, d, problem)
			return
		}
		time.Sleep(d / 64)
	}
}

func (w *world) finish() {
	if w.ending == endElectionUnderFire {
		w.endElection()
	}
	w.healAll()
	if !w.ended {
		w.eventually(w.bound(), "nobody leads", func() string {
			if len(w.living()) > 0 && len(w.leading()) == 0 {
				return fmt.Sprintf("%d candidates wait", len(w.living()))
			}
			return ""
		})
		w.eventually(w.bound(), "the line is not that of the living", w.lineDiffers)
		w.eventually(w.bound(), "watches are left", w.watchesLeft)
		w.check()
	}
	switch w.ending {
	case resignTogether:
		for _, c := range w.living() {
			w.resign(c)
		}
	case resignInTurn:
		for _, c := range w.living() {
			w.resign(c)
			w.pass(w.timeout / 8)
		}
	case endElection:
		w.endElection()
	}
	w.eventually(2*w.bound(), "candidacies are not over", func() string {
		var left []string
		for _, c := range w.candidates {
			c.mu.Lock()
			if !c.over {
				left = append(left, c.name)
			}
			c.mu.Unlock()
		}
		return strings.Join(left, " ")
	})
	w.eventually(2*w.bound(), "znodes are left", func() string {
		tree := w.ensemble.Tree()
		if !strings.Contains(tree, "latch") && strings.Contains(tree, "election") != w.ended {
			return ""
		}
		return tree
	})
	w.eventually(w.bound(), "watches are left at the end", w.watchesLeft)
	w.eventually(w.bound(), "EndElection does not return", func() string {
		if w.endAsked.Load() {
			return "it was called"
		}
		return ""
	})
	for _, l := range w.links {
		if !l.closed {
			l.conn.Close()
		}
	}
	w.closing.Store(true)
	w.operator.Close()
	w.busy.Wait()
	w.mu.Lock()
	violations := slices.Concat(judgeEnd(w.spans, w.marked, 2*w.latency), judge(w.spans, w.excused, w.told/2+2*w.latency+w.told/4), judgeWrites(w.writes))
	w.mu.Unlock()
	for _, v := range violations {
		w.violation("%s", v)
	}
}

// endElection ends the election for all.
func (w *world) endElection() {
	c := w.choose(int(w.seed))
	if c == nil || c.id() == "" || c.link.closed {
		w.ending = resignTogether
		return
	}
	w.note("%s: ends the election", c.name)
	w.ended = true
	w.ensemble.Server(0).After(zktest.Match{Op: zktest.OpMulti, Path: node + "/DONE"}, func(q *zktest.Request) zktest.Verdict {
		if q.Code == 0 {
			w.mark()
		}
		return zktest.Verdict{}
	})
	w.endAsked.Store(true)
	w.busy.Go(func() {
		begin := time.Now()
		err := c.election.EndElection()
		w.endAsked.Store(false)
		w.note("%s: has ended the election: %v", c.name, err)
		if d := time.Since(begin); d > resignLimit {
			w.violation("%s: EndElection took %v", c.name, d)
		}
		if err != nil && !errors.Is(err, leaderelection.ErrUnconfirmed) {
			w.violation("%s: EndElection: %v", c.name, err)
		}
	})
}

// lineDiffers says how the znodes differ from those of the living candidates.
func (w *world) lineDiffers() string {
	tree := w.ensemble.Tree()
	want := 0
	for _, c := range w.living() {
		id := c.id()
		if id == "" {
			return c.name + " has no znode yet"
		}
		want++
		if !w.hasNode(id) {
			return fmt.Sprintf("%s lives without its znode %s:\n%s", c.name, id, tree)
		}
	}
	if got := strings.Count(tree, "\n    "); got != want {
		return fmt.Sprintf("%d znodes of %d living candidates:\n%s", got, want, tree)
	}
	return ""
}

func (w *world) hasNode(id string) bool {
	return id != "" && strings.Contains(w.ensemble.Tree(), "    "+strings.TrimPrefix(id, node+"/")+" ")
}

// watchesLeft says which watches belong to nobody who lives: everybody watches
// the own znode and the predecessor's.
func (w *world) watchesLeft() string {
	type watch struct {
		session int64
		path    string
		kind    zktest.WatchKind
	}
	wanted := map[watch]bool{}
	for _, c := range w.living() {
		session := c.link.conn.SessionID()
		wanted[watch{session, c.id(), zktest.ChildWatch}] = true
		wanted[watch{session, c.election.Current().NowFollowing, zktest.DataWatch}] = true
	}
	for _, x := range w.ensemble.Server(0).Watches() {
		if !wanted[watch{x.Session, x.Path, x.Kind}] && !w.mayStay(x) {
			return fmt.Sprintf("%v of session %x at %s", x.Kind, x.Session, x.Path)
		}
	}
	return ""
}

// mayStay says which watches may be left all the same. Who was deleted by an
// operator cannot take back the watch on the predecessor, which another one may
// watch by then. And what the client library had queued when a session expired,
// a watch to set among it, it sends in the next one.
func (w *world) mayStay(x zktest.Watch) bool {
	return slices.ContainsFunc(w.candidates, func(c *candidate) bool {
		if c.link.conn.SessionID() != x.Session {
			return false
		}
		if x.Kind == zktest.DataWatch && w.isExcused(c.id()) {
			return true
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.session != x.Session && slices.Contains(c.watched, x.Path)
	})
}
