package leaderelection_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// hooked is a candidate and what its hooks were told.
type hooked struct {
	*contender
	mu      sync.Mutex
	events  []string // without checks and watches
	broken  []string // what was not as it has to be during a call
	elected []leaderelection.HookEvent
	watched []string
	counts
}

type counts struct {
	checked int
	failed  int // of checked
	missed  int
}

// rest returns what h has counted when everything has come to rest.
func (h *hooked) rest() counts {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts
}

// hook makes a candidate on conn whose hooks are recorded, and called before that
// by more.
func (l *line) hook(conn *zk.Conn, opts ...leaderelection.Option) *hooked {
	l.Helper()
	h := &hooked{}
	var ends []<-chan struct{}
	says := func(what string, more func(leaderelection.HookEvent)) func(leaderelection.HookEvent) {
		return func(e leaderelection.HookEvent) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if e.Election != electionNode || e.Time.IsZero() || (e.ID != h.ID() && what != "ended") {
				h.broken = append(h.broken, fmt.Sprintf("%s: %+v", what, e))
			}
			if e.Err != nil {
				what := what + ": " + e.Err.Error()
				h.events = append(h.events, what)
			} else {
				h.events = append(h.events, what)
			}
			if more != nil {
				more(e)
			}
		}
	}
	leads := func(e leaderelection.HookEvent) {
		s := h.Current()
		if s.Role != leaderelection.Leader || s.Leadership.Token() != e.Token {
			h.broken = append(h.broken, fmt.Sprintf("told to lead, while %v", s))
			return
		}
		ends = append(ends, s.Leadership.Done())
	}
	ended := func(leaderelection.HookEvent) {
		if len(ends) == 0 {
			h.broken = append(h.broken, "told of an end without a beginning")
			return
		}
		select {
		case <-ends[len(ends)-1]:
		default:
			h.broken = append(h.broken, "told of the end before Done was closed")
		}
	}
	opts = append(opts, leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(l.timeout),
		leaderelection.WithHooks(leaderelection.Hooks{
			Joined: says("joined", nil),
			Elected: says("elected", func(e leaderelection.HookEvent) {
				h.elected = append(h.elected, e)
				leads(e)
			}),
			Suspended: says("suspended", ended),
			Resumed:   says("resumed", leads),
			Lost:      says("lost", ended),
			Ended:     says("ended", nil),
			Checked: func(e leaderelection.HookEvent) {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.checked++
				if e.Sent.IsZero() || e.Sent.After(e.Time) {
					h.broken = append(h.broken, "checked before it was sent")
				}
				if e.Err != nil {
					h.failed++
				}
			},
			Watched: func(e leaderelection.HookEvent) {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.watched = append(h.watched, e.Path)
			},
			Missed: func(e leaderelection.HookEvent) {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.missed += e.Missed
			},
		}))
	e, err := leaderelection.NewElection(conn, electionNode, opts...)
	require.NoError(l, err)
	h.contender = &contender{Election: e, conn: conn}
	return h
}

// heard requires what h was told since it joined, when everything has come to rest.
func (l *line) heard(h *hooked, want ...string) {
	l.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Equal(l, want, h.events)
	require.Empty(l, h.broken)
	require.Zero(l, h.missed)
}

func TestHooksOfAHandOver(t *testing.T) {
	inSlowLine(t, func(l *line) {
		first, second := l.hook(l.connect()), l.hook(l.connect())
		l.join(first.contender)
		l.join(second.contender)
		l.heard(first, "joined", "elected")
		l.heard(second, "joined")
		_, ok := first.elected[0].HandOver()
		require.False(t, ok, "there was no predecessor")
		require.Equal(t, []string{first.ID()}, first.watched)
		require.Equal(t, []string{second.ID(), first.ID()}, second.watched)

		l.cost(func() {
			go l.resign(first.contender)
			l.leads(second.contender)
		})
		l.heard(first, "joined", "elected", "lost: candidate has resigned", "ended: candidate has resigned")
		l.heard(second, "joined", "elected")
		took, ok := second.elected[0].HandOver()
		require.True(t, ok)
		require.Zero(t, took, "it asks nothing")
		require.Equal(t, second.Current().Leadership.Token(), second.elected[0].Token)
	})
}

// The third in line has to list when both ahead go at once.
func TestHooksTellHowLongAHandOverTakes(t *testing.T) {
	inSlowLine(t, func(l *line) {
		ahead := l.stand(2)
		third := l.hook(l.connect())
		l.join(third.contender)
		l.cost(func() {
			for _, c := range ahead {
				require.NoError(t, l.srv.ExpireSession(c.conn.SessionID()))
			}
			l.leads(third.contender)
		})
		l.heard(third, "joined", "elected")
		took, ok := third.elected[0].HandOver()
		require.True(t, ok)
		require.Equal(t, roundTrip, took)
	})
}

// A predecessor's end that does not make a leader has nothing to do with the end
// that does.
func TestHooksOfAPredecessorThatWasNoLeader(t *testing.T) {
	inSlowLine(t, func(l *line) {
		ahead := l.stand(2)
		third := l.hook(l.connect())
		l.join(third.contender)
		l.resign(ahead[1])
		l.cost(func() {
			go l.resign(ahead[0])
			l.leads(third.contender)
		})
		l.heard(third, "joined", "elected")
		took, ok := third.elected[0].HandOver()
		require.True(t, ok)
		require.Zero(t, took)
		require.Equal(t, []string{third.ID(), ahead[1].ID(), ahead[0].ID()}, third.watched)
	})
}

// How long a hand-over took is not known of one that was not told: here the server
// does not set the watches anew.
func TestHooksOfAHandOverWithoutConnection(t *testing.T) {
	inSlowLine(t, func(l *line) {
		ahead := l.stand(2)
		third := l.hook(l.connect())
		l.join(third.contender)
		l.resign(ahead[1])
		time.Sleep(leasePeriod)
		lost := l.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: third.conn.SessionID()}, zktest.Fail(zktest.Code(-99)))
		defer lost.Remove()
		l.srv.Refuse(true)
		l.srv.DropConnections(third.conn.SessionID())
		l.resign(ahead[0])
		l.srv.Refuse(false)
		l.leads(third.contender)
		l.heard(third, "joined", "elected")
		_, ok := third.elected[0].HandOver()
		require.False(t, ok)
	})
}

func TestHooksOfASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		h := l.hook(l.connect())
		leads := l.join(h.contender)
		require.Equal(t, leaderelection.Leader, leads.Role)
		l.srv.Blackhole(zktest.BothWays)
		<-leads.Leadership.Done()
		l.heard(h, "joined", "elected", "suspended: lease expired: it was not confirmed in time")
		l.srv.Heal()
		l.leads(h.contender)
		l.heard(h, "joined", "elected", "suspended: lease expired: it was not confirmed in time", "resumed")
		require.NoError(t, l.srv.ExpireSession(h.conn.SessionID()))
		<-h.over
		events := []string{
			"joined", "elected", "suspended: lease expired: it was not confirmed in time", "resumed",
			"lost: znode was deleted by another client", // the first that is heard of it
			"ended: session expired",
		}
		l.heard(h, events...)
		_ = h.Resign()
		l.heard(h, events...)
	})
}

func TestHooksOfALeadershipThatIsLostWhileSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		ahead := l.stand(1)
		h := l.hook(l.connect(), leaderelection.WithRejoin())
		l.join(h.contender)
		l.resign(ahead[0])
		l.leads(h.contender)
		l.srv.Refuse(true)
		l.srv.DropConnections()
		time.Sleep(2 * sessionTimeout)
		l.srv.Refuse(false)
		l.leads(h.contender)
		l.heard(h, "joined", "elected", "suspended: lease expired: it was not confirmed in time",
			"lost: session expired", "joined", "elected")
		_, ok := h.elected[0].HandOver()
		require.True(t, ok)
		_, ok = h.elected[1].HandOver()
		require.False(t, ok, "there was no predecessor this time")
		require.Greater(t, h.elected[1].Token, h.elected[0].Token)
	})
}

// In a tree that was built again, the candidate's new znode has the path of its earlier one.
func TestHooksOfASecondZnodeAtThePath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		h := l.hook(l.connect(), leaderelection.WithRejoin(), leaderelection.WithNaming(leaderelection.Prefix("n_")))
		l.join(h.contender)
		first := h.ID()
		l.srv.Restart(zktest.LoseTree)
		time.Sleep(sessionTimeout)
		l.leads(h.contender)
		require.Equal(t, first, h.ID())
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		require.Equal(t, []string{"joined", "elected"}, h.events[len(h.events)-2:])
	})
}

func TestHooksOfAnElectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		first, second := l.hook(l.connect()), l.hook(l.connect())
		l.join(first.contender)
		l.join(second.contender)
		l.heard(first, "joined", "elected") // before the status changes again: hooks come later than it
		require.NoError(t, second.EndElection())
		<-first.over
		<-second.over
		// What the leader sees first is that its znode is gone.
		l.heard(first, "joined", "elected", "lost: znode was deleted by another client", "ended: election is over")
		l.heard(second, "joined", "ended: election is over")
	})
}

func TestHooksOfACandidateThatCannotJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		h, never := l.hook(l.connect()), l.hook(l.connect())
		l.srv.Refuse(true)
		l.srv.DropConnections()
		require.ErrorIs(t, h.ElectLeader(), leaderelection.ErrUnreachable)
		synctest.Wait()
		l.heard(h, "ended: ZooKeeper does not answer")

		require.NoError(t, never.Resign())
		require.ErrorIs(t, never.ElectLeader(), leaderelection.ErrCandidacyOver)
		synctest.Wait()
		require.Empty(t, never.events, "it has not taken part")
	})
}

// The second in line checks too, and nobody else.
func TestHooksCountChecks(t *testing.T) {
	const periods = 100
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		all := []*hooked{l.hook(l.connect()), l.hook(l.connect()), l.hook(l.connect())}
		for _, h := range all {
			l.join(h.contender)
		}
		time.Sleep(10*leasePeriod + leasePeriod/2)
		before := []counts{all[0].rest(), all[1].rest(), all[2].rest()}
		time.Sleep(periods * leasePeriod)
		for i, want := range []int{periods, periods, 0} {
			now := all[i].rest()
			require.Equal(t, want, now.checked-before[i].checked, "candidate %d", i)
			require.Zero(t, now.failed)
		}
		l.heard(all[0], "joined", "elected")
	})
}

// A check that is lost with its connection has proven nothing.
func TestHooksTellOfChecksThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		h := l.hook(l.connect())
		l.join(h.contender)
		time.Sleep(2 * leasePeriod)
		l.srv.Before(zktest.Match{Op: zktest.OpMulti, Nth: 1}, zktest.Cut)
		time.Sleep(sessionTimeout)
		require.Equal(t, 1, h.rest().failed)
	})
}

// A hook that does not return holds up hooks, and nothing else.
func TestHookThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		release := make(chan struct{})
		blocked := false
		h := l.hook(l.connect(), leaderelection.WithHooks(leaderelection.Hooks{
			Elected: func(leaderelection.HookEvent) {
				blocked = true
				<-release
			},
		}))
		follower := l.hook(l.connect())
		leads := l.join(h.contender)
		l.join(follower.contender)
		time.Sleep(100 * leasePeriod) // more than wait for a hook
		synctest.Wait()
		require.True(t, blocked)
		require.NoError(t, leads.Leadership.Err())

		l.srv.Partition(h.conn.SessionID())
		<-leads.Leadership.Done()
		require.Len(t, l.srv.Sessions(), 2, "another one can lead already")
		require.NotEqual(t, leaderelection.Leader, follower.Current().Role)
		l.srv.Heal()
		l.leads(h.contender)

		start := time.Now()
		require.NoError(t, h.Resign())
		require.Zero(t, time.Since(start))
		l.leads(follower.contender)
		require.Zero(t, time.Since(start))
		<-h.over
		require.Equal(t, 1500*time.Millisecond, time.Since(start))
		close(release)
		l.heard(h, "joined")
	})
}

// What had to be left out is told when the hook has returned: checks first.
func TestHookThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		release := make(chan struct{})
		h := l.hook(l.connect(), leaderelection.WithHooks(leaderelection.Hooks{
			Elected: func(leaderelection.HookEvent) { <-release },
		}))
		leads := l.join(h.contender)
		l.srv.Blackhole(zktest.BothWays)
		<-leads.Leadership.Done()
		l.srv.Heal()
		l.leads(h.contender)
		time.Sleep(100*leasePeriod + leasePeriod/2)
		close(release)
		now := h.rest()
		require.Equal(t, []string{"joined", "elected", "suspended: lease expired: it was not confirmed in time", "resumed"}, h.events)
		require.Positive(t, now.missed)
		require.Positive(t, now.checked)
		require.Greater(t, now.checked+now.missed, 100)
	})
}

// Hooks may end a candidacy, and wait for nothing that waits for them.
func TestHookThatResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		var h *hooked
		h = l.hook(l.connect(), leaderelection.WithHooks(leaderelection.Hooks{
			Elected: func(leaderelection.HookEvent) { _ = h.Resign() },
		}))
		l.start(h.contender)
		<-h.over
		synctest.Wait()
		require.Equal(t, []string{"joined", "elected", "lost: candidate has resigned", "ended: candidate has resigned"}, h.events)
	})
}
