package explore

// What has to hold after each step, and when all faults are over.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

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
		if !strings.Contains(tree, "latch") && !strings.Contains(tree, "n_") && (w.rebuilt || strings.Contains(tree, "election") != w.ended) {
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

// watchesLeft returns a watch that no living candidate needs. Each of them watches its
// own znode and its predecessor's. A follower that has left leaves its watch on the
// predecessor until that one leaves: one for each connection, as a server counts them.
func (w *world) watchesLeft() string {
	type watch struct {
		session int64
		path    string
	}
	own, standing := map[watch]bool{}, map[string]bool{}
	for _, c := range w.living() {
		own[watch{c.link.conn.SessionID(), c.id()}], standing[c.id()] = true, true
	}
	for _, x := range w.ensemble.Server(0).Watches() {
		wanted := own[watch{x.Session, x.Path}]
		if x.Kind == zktest.DataWatch {
			wanted = standing[x.Path]
		}
		if !wanted && !w.mayStay(x) {
			return fmt.Sprintf("%v of session %x at %s", x.Kind, x.Session, x.Path)
		}
	}
	return ""
}

// mayStay reports whether a watch may remain all the same: the client library sends what
// it had queued when a session expired, such as a request with a watch, in the next one.
func (w *world) mayStay(x zktest.Watch) bool {
	return slices.ContainsFunc(w.candidates, func(c *candidate) bool {
		if c.link.conn.SessionID() != x.Session {
			return false
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.session != x.Session && slices.Contains(c.watched, x.Path)
	})
}
