package traptest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// watcher reads each observation at once.
type watcher struct {
	mu     sync.Mutex
	seen   []leaderelection.Observation
	closed bool
}

func (w *world) observe(ctx context.Context, conn *zk.Conn) *watcher {
	w.Helper()
	c, err := leaderelection.Observe(ctx, conn, node, leaderelection.WithSessionTimeout(timeout))
	require.NoError(w, err)
	v := &watcher{}
	go func() {
		for o := range c {
			v.mu.Lock()
			v.seen = append(v.seen, o)
			v.mu.Unlock()
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.closed = true
	}()
	w.pass(0)
	return v
}

// leaders are the names of those seen so far; "-" is nobody.
func (v *watcher) leaders() (names []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, o := range v.seen {
		switch {
		case o.Err != nil:
			names = append(names, o.Err.Error())
		case o.Leader == nil:
			names = append(names, "-")
		default:
			names = append(names, o.Leader.Name)
		}
	}
	return names
}

// named enlists a candidate with a name over a connection of its own.
func (w *world) named(name string) *candidate {
	return w.enlist(w.connect(), leaderelection.WithClientName(name))
}

func info(c *candidate, name string, token int64) leaderelection.CandidateInfo {
	return leaderelection.CandidateInfo{ID: c.ID(), Name: name, Token: token}
}

// C18: nobody could watch who leads without taking part.
func TestC18_Observation(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		session := conn.SessionID()
		v := w.observe(w.Context(), conn)
		require.Equal(w, []string{"-"}, v.leaders())
		one := w.named("one")
		require.Equal(w, []string{"-", "one"}, v.leaders(), "seen at once")
		two, three := w.named("two"), w.named("three")
		require.Equal(w, []zktest.Watch{{Session: session, Path: one.ID(), Kind: zktest.DataWatch}},
			watchesOf(w, session), "only the leader's znode is watched")
		require.NoError(w, two.Resign()) // which is nobody's business
		require.NoError(w, one.Resign())
		w.pass(0)
		require.Equal(w, []string{"-", "one", "three"}, v.leaders())
		newest := v.seen[2].Leader
		require.Equal(w, info(three, "three", three.leads().Token()), *newest)

		// It goes on in the next session.
		require.NoError(w, w.srv.ExpireSession(session))
		require.NoError(w, three.Resign())
		w.pass(timeout)
		require.Equal(w, []string{"-", "one", "three", "-"}, v.leaders())
		w.named("four")
		require.Equal(w, []string{"-", "one", "three", "-", "four"}, v.leaders())

		require.NoError(w, leaderelection.DeleteElection(w.operator, node))
		w.pass(time.Second)
		v.mu.Lock()
		defer v.mu.Unlock()
		require.ErrorIs(w, v.seen[len(v.seen)-1].Err, leaderelection.ErrElectionOver)
		require.True(w, v.closed)
	})
}

// C18: nor does it miss what happens while its connection is down, even if the
// client cannot set its watch anew.
func TestC18_ObservationAfterReconnect(t *testing.T) {
	play(t, 2, func(w *world) {
		conn := w.connect()
		one, _ := w.named("one"), w.named("two")
		v := w.observe(w.Context(), conn)
		w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zktest.Code(-127)))
		w.away(conn, func() { assert.NoError(w, one.Resign()) })
		w.pass(timeout / 4)
		require.Equal(w, []string{"one", "two"}, v.leaders())
	})
}

// C18: an election that is being ended has no leader to observe.
func TestC18_ObservationOfAnEnd(t *testing.T) {
	play(t, 1, func(w *world) {
		leader := w.named("leader")
		v := w.observe(w.Context(), w.connect())
		deleter := w.connect()
		hold, release := w.hold()
		w.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: deleter.SessionID(), Nth: 2}, hold)
		ended := make(chan error, 1)
		go func() { ended <- leaderelection.DeleteElection(deleter, node) }()
		w.pass(0)
		w.stands(append(line(leader), "DONE")...)
		require.Len(w, v.leaders(), 2)
		require.ErrorIs(w, v.seen[1].Err, leaderelection.ErrElectionOver)
		_, err := leaderelection.Observe(w.Context(), w.operator, node)
		require.ErrorIs(w, err, leaderelection.ErrElectionOver)
		_, err = leaderelection.Candidates(w.operator, node)
		require.ErrorIs(w, err, leaderelection.ErrElectionOver)
		_, _, err = leaderelection.CurrentLeader(w.operator, node)
		require.ErrorIs(w, err, leaderelection.ErrElectionOver)
		release()
		require.NoError(w, <-ended)
	})
}

func watchesOf(w *world, session int64) (found []zktest.Watch) {
	for _, watch := range w.srv.Watches() {
		if watch.Session == session {
			found = append(found, watch)
		}
	}
	return found
}

// C18: an observation ends with its context, without an error, and with the
// connection. A reader that is late gets the newest.
func TestC18_ObservationEnds(t *testing.T) {
	play(t, 1, func(w *world) {
		w.named("leader")
		ctx, cancel := context.WithCancel(w.Context())
		v := w.observe(ctx, w.connect())
		late, err := leaderelection.Observe(ctx, w.connect(), node)
		require.NoError(w, err)
		for i := range 3 {
			all, err := leaderelection.Candidates(w.operator, node)
			require.NoError(w, err)
			w.named(fmt.Sprint(i))
			require.NoError(w, w.operator.Delete(all[0].ID, -1))
			w.pass(10 * time.Millisecond)
		}
		require.Equal(w, "2", (<-late).Leader.Name)
		require.Empty(w, late)
		cancel()
		w.pass(0)
		require.Equal(w, []string{"leader", "0", "1", "2"}, v.leaders())
		require.True(w, v.closed)

		closing := w.connect()
		v = w.observe(w.Context(), closing)
		closing.Close()
		w.pass(timeout)
		v.mu.Lock()
		defer v.mu.Unlock()
		require.Len(w, v.seen, 2)
		require.ErrorIs(w, v.seen[1].Err, leaderelection.ErrConnClosed)
		require.True(w, v.closed)
	})
}

// C18: the candidates could not be listed.
func TestC18_Candidates(t *testing.T) {
	play(t, 1, func(w *world) {
		all, err := leaderelection.Candidates(w.operator, node)
		require.NoError(w, err)
		require.Empty(w, all)
		_, found, err := leaderelection.CurrentLeader(w.operator, node)
		require.NoError(w, err)
		require.False(w, found)

		var line []*candidate
		for i := range 12 { // from 10 on, an order by text is another one
			line = append(line, w.named(fmt.Sprint(i)))
		}
		require.NoError(w, line[4].Resign())
		line = append(line[:4], line[5:]...)
		all, err = leaderelection.Candidates(w.operator, node)
		require.NoError(w, err)
		require.Len(w, all, len(line))
		for i, c := range line {
			_, stat, err := w.operator.Get(c.ID())
			require.NoError(w, err)
			name := fmt.Sprint(i)
			if i >= 4 {
				name = fmt.Sprint(i + 1)
			}
			require.Equal(w, info(c, name, stat.Czxid), all[i])
		}
		first, found, err := leaderelection.CurrentLeader(w.operator, node)
		require.NoError(w, err)
		require.True(w, found)
		require.Equal(w, all[0], first)
		require.Equal(w, line[0].leads().Token(), first.Token)

		require.NoError(w, leaderelection.DeleteElection(w.operator, node))
		_, err = leaderelection.Candidates(w.operator, node)
		require.ErrorIs(w, err, leaderelection.ErrNoElection)
	})
}

// C18: the leader's name and data could not be got at. They stay what they were
// when the candidate writes its znode once more.
func TestC18_LeadersData(t *testing.T) {
	play(t, 1, func(w *world) {
		one, two, three := w.named("host-1:8080"), w.named("ünïcode"), w.named("")
		for _, want := range []struct {
			c    *candidate
			name string
		}{{one, "host-1:8080"}, {two, "ünïcode"}, {three, "name-not-provided"}} {
			want.c.leads()
			w.pass(time.Second) // the hint to the follower is written by then
			leader, found, err := leaderelection.CurrentLeader(w.operator, node)
			require.NoError(w, err)
			require.True(w, found)
			require.Equal(w, want.name, leader.Name)
			require.Equal(w, want.c.ID(), leader.ID)
			require.NoError(w, want.c.Resign())
			w.pass(0)
		}
	})
}
