package raftlog_test

// Elections, beyond what all backends of them have in common (conformance_test.go).

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
)

// Elections have leaders of their own, none of whom needs to lead the log.
func TestElectionsHaveLeadersOfTheirOwn(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		names := []string{"a", "b", "c"}
		candidates := map[string]*candidate{}
		for i, name := range names {
			for k := range 3 {
				p := w.peers[(i+k)%3]
				c := stand(t, w.node(p), name, raftlog.WithClientName(p.ID+" for "+name))
				if k == 0 {
					candidates[name] = c
					c.awaitLeader(t)
				}
				await(t, "in line", func() bool {
					line, err := raftlog.Candidates(t.Context(), w.node(w.peers[0]), name)
					return err == nil && len(line) == k+1
				})
			}
		}
		for i, name := range names {
			require.True(t, candidates[name].leads())
			line, err := raftlog.Candidates(t.Context(), w.node(w.peers[i]), name)
			require.NoError(t, err)
			require.Equal(t, candidates[name].ID(), line[0].ID)
			require.Equal(t, w.peers[i].ID+" for "+name, line[0].Name)
			require.Equal(t, candidates[name].Current().Leadership.Token(), line[0].Token)
			require.Equal(t, w.peers[(i+1)%3].ID+" for "+name, line[1].Name)
		}
		// The end of one is not that of the others.
		require.NoError(t, raftlog.DeleteElection(within(t, time.Minute), w.node(w.peers[1]), "a"))
		<-candidates["a"].ended
		require.ErrorIs(t, candidates["a"].err, leaderelection.ErrElectionOver)
		require.True(t, candidates["b"].leads())
		require.NoError(t, candidates["b"].Resign())
		require.True(t, candidates["c"].leads())
	})
}

// Tokens grow, whatever has happened between two leaderships.
func TestTokensGrow(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		var tokens []int64
		add := func(token int64) {
			if n := len(tokens); n > 0 {
				require.Greater(t, token, tokens[n-1])
			}
			tokens = append(tokens, token)
		}
		c := stand(t, w.node(w.peers[0]), "e")
		add(c.awaitLeader(t))
		next := stand(t, w.node(w.peers[1]), "e")
		require.NoError(t, c.Resign())
		add(next.awaitLeader(t))
		w.crash(w.leader(t)) // of the log
		w.crash(w.others()[slices.IndexFunc(w.peers, func(p api.Peer) bool { return w.node(p) != nil })])
		for _, p := range w.peers {
			if w.node(p) != nil {
				w.crash(p)
			}
		}
		w.startAll()
		c = stand(t, w.node(w.peers[2]), "e")
		add(c.awaitLeader(t))
		require.NoError(t, raftlog.DeleteElection(within(t, time.Minute), w.node(w.peers[0]), "e"))
		require.NoError(t, raftlog.RestartElection(within(t, time.Minute), w.node(w.peers[1]), "e"))
		c = stand(t, w.node(w.peers[0]), "e")
		add(c.awaitLeader(t))
		for _, p := range w.peers {
			_, err := w.node(p).Compact(within(t, time.Minute))
			require.NoError(t, err)
			require.NoError(t, w.stop(p))
		}
		w.startAll()
		c = stand(t, w.node(w.peers[1]), "e")
		add(c.awaitLeader(t))
		require.Len(t, tokens, 5)
	})
}

// A process that begins again while its candidate of before is first in line: that one is
// taken out, and the next leads, before long.
func TestRestartOfTheFirstInLine(t *testing.T) {
	for _, stop := range []func(*world, api.Peer){
		func(w *world, p api.Peer) { w.crash(p) },
		func(w *world, p api.Peer) { _ = w.stop(p) },
	} {
		inWorld(t, 3, func(t *testing.T, w *world) {
			first := stand(t, w.node(w.peers[0]), "e")
			token := first.awaitLeader(t)
			second := stand(t, w.node(w.peers[1]), "e")
			await(t, "in line", func() bool {
				line, err := raftlog.Candidates(t.Context(), w.node(w.peers[1]), "e")
				return err == nil && len(line) == 2
			})
			stop(w, w.peers[0])
			<-first.ended
			require.ErrorIs(t, first.err, leaderelection.ErrConnClosed)
			w.start(w.peers[0])
			began := time.Now()
			again := stand(t, w.node(w.peers[0]), "e")
			require.Greater(t, second.awaitLeader(t), token)
			require.Less(t, time.Since(began), 1200*time.Millisecond)
			require.False(t, again.leads())
			require.NoError(t, second.Resign())
			again.awaitLeader(t)
		})
	}
}

func TestDeleteAndRestartElection(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		var all []*candidate
		for _, p := range w.peers {
			all = append(all, stand(t, w.node(p), "e"))
		}
		await(t, "a leader", func() bool { return slices.ContainsFunc(all, (*candidate).leads) })
		for range 2 {
			require.NoError(t, raftlog.DeleteElection(within(t, time.Minute), w.node(w.peers[2]), "e"))
		}
		for _, c := range all {
			<-c.ended
			require.ErrorIs(t, c.err, leaderelection.ErrElectionOver)
		}
		_, err := raftlog.Candidates(t.Context(), w.node(w.peers[2]), "e")
		require.ErrorIs(t, err, leaderelection.ErrElectionOver)
		late := stand(t, w.node(w.peers[0]), "e")
		<-late.ended
		require.ErrorIs(t, late.err, leaderelection.ErrElectionOver)
		for range 2 {
			require.NoError(t, raftlog.RestartElection(within(t, time.Minute), w.node(w.peers[0]), "e"))
		}
		time.Sleep(time.Second)
		line, err := raftlog.Candidates(t.Context(), w.node(w.peers[0]), "e")
		require.NoError(t, err)
		require.Empty(t, line, "those whose candidacy is over do not come back")
		c := stand(t, w.node(w.peers[0]), "e")
		c.awaitLeader(t)
		// Whoever cannot reach a majority is told so, and the election goes on.
		heal := w.isolate(w.peers[2])
		err = raftlog.DeleteElection(within(t, time.Second), w.node(w.peers[2]), "e")
		require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
		heal()
		require.True(t, c.leads())
		require.NoError(t, w.stop(w.peers[1]))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, raftlog.DeleteElection(ctx, w.node(w.peers[0]), "e"), leaderelection.ErrUnconfirmed)
	})
}

// TestEndedElectionIsForgotten: after the window a new candidate can lead an ended election, also on a
// peer that was restarted. If the election is ended twice, the second call writes nothing.
func TestEndedElectionIsForgotten(t *testing.T) {
	const window = 2 * time.Minute
	briefly := func(c *raftlog.Config) { c.Window = window }
	inWorld(t, 3, func(t *testing.T, w *world) {
		c := stand(t, w.node(w.peers[0]), "e")
		token := c.awaitLeader(t)
		require.NoError(t, raftlog.DeleteElection(within(t, time.Minute), w.node(w.peers[1]), "e"))
		ended := time.Now()
		<-c.ended
		time.Sleep(window / 4)
		last := w.node(w.leader(t)).Info().CommitIndex
		require.NoError(t, raftlog.DeleteElection(within(t, time.Minute), w.node(w.peers[1]), "e"))
		require.Equal(t, last, w.node(w.leader(t)).Info().CommitIndex)
		require.NoError(t, w.stop(w.peers[2]))
		w.start(w.peers[2], slowly, briefly)
		n := w.node(w.peers[2])
		require.NoError(t, n.Sync(within(t, time.Minute)))
		over := func() bool {
			_, _, err := raftlog.CurrentLeader(t.Context(), n, "e")
			return errors.Is(err, leaderelection.ErrElectionOver)
		}
		for over() {
			require.Less(t, time.Since(ended), window+2*time.Minute)
			time.Sleep(time.Second)
		}
		require.GreaterOrEqual(t, time.Since(ended), window)
		require.Greater(t, stand(t, n, "e").awaitLeader(t), token)
	}, slowly, briefly)
}

// TestLateEndIsUnconfirmed: if a request to end an election is rejected as too old, the caller does not know
// whether an earlier attempt was applied.
func TestLateEndIsUnconfirmed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		err := raftlog.ChangeError(t.Context(), w.node(w.peers[0]), fmt.Errorf("%w", api.ErrStale))
		require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
		require.ErrorIs(t, err, api.ErrStale)
	})
}

// Who ends an election means the one of now, wherever the peer is that is asked.
func TestDeleteWhereTheRestartIsNotKnown(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.others(w.leader(t))[0]
		other := w.others(p)[0]
		require.NoError(t, raftlog.DeleteElection(within(t, time.Minute), w.node(other), "e"))
		require.NoError(t, w.node(p).Sync(within(t, time.Minute)))
		heal := w.isolate(p)
		require.NoError(t, raftlog.RestartElection(within(t, time.Minute), w.node(other), "e"))
		c := stand(t, w.node(other), "e")
		c.awaitLeader(t)
		heal()
		require.NoError(t, raftlog.DeleteElection(within(t, time.Minute), w.node(p), "e"))
		select {
		case <-c.ended:
		case <-time.After(time.Minute):
			t.Fatal("it goes on")
		}
		require.ErrorIs(t, c.err, leaderelection.ErrElectionOver)
	})
}

// standing is a state machine that applies nothing before goOn is closed.
type standing struct {
	raftlog.StateMachine
	goOn chan struct{}
}

func (s standing) Apply(entries []api.Entry, through uint64) error {
	<-s.goOn
	return s.StateMachine.Apply(entries, through)
}

// An election is ended from a peer whose state machine stands, too; but that is confirmed when it
// goes on.
func TestDeleteWhereTheStateMachineStands(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.others(w.leader(t))[0]
		c := stand(t, w.node(w.others(p)[0]), "e")
		c.awaitLeader(t)
		require.NoError(t, w.stop(p))
		goOn := make(chan struct{})
		w.start(p, func(c *raftlog.Config) { c.StateMachine = standing{c.StateMachine, goOn} })
		w.propose(t, w.others(p)[0], "it waits for this")
		deleted := make(chan error, 1)
		go func() { deleted <- raftlog.DeleteElection(within(t, time.Hour), w.node(p), "e") }()
		select {
		case <-c.ended:
		case <-time.After(time.Minute):
			t.Error("it goes on")
		}
		require.Empty(t, deleted)
		close(goOn)
		require.NoError(t, <-deleted)
		require.ErrorIs(t, c.err, leaderelection.ErrElectionOver)
	})
}

// An election that is ended and begun anew at once has ended for those who stood in it,
// whether their peer saw the moment between or not.
func TestDeleteAndRestartBeforeAPeerLooks(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.others(w.leader(t))[0]
		other := w.others(p)[0]
		c := stand(t, w.node(p), "e")
		c.awaitLeader(t)
		goOn := w.node(p).BlockLoop()
		require.NoError(t, raftlog.DeleteElection(within(t, time.Minute), w.node(other), "e"))
		require.NoError(t, raftlog.RestartElection(within(t, time.Minute), w.node(other), "e"))
		goOn()
		select {
		case <-c.ended:
		case <-time.After(time.Minute):
			t.Fatal("it goes on")
		}
		require.ErrorIs(t, c.err, leaderelection.ErrElectionOver)
	})
}

// A leader whose node does nothing any more is told in time all the same, by the clock, and
// leads again, with its token, when the node goes on before others have taken its place.
func TestLossWhileTheLoopIsStuck(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.others(w.leader(t))[0]
		c := stand(t, w.node(p), "e")
		token := c.awaitLeader(t)
		for held := 150 * time.Millisecond; held < 196*time.Millisecond; held += 3 * time.Millisecond {
			l := c.Current().Leadership
			require.NotNil(t, l)
			goOn := w.node(p).BlockLoop()
			began := time.Now()
			require.LessOrEqual(t, l.Deadline().Sub(began), 200*time.Millisecond)
			time.Sleep(held)
			if time.Now().After(l.Deadline()) {
				require.Error(t, l.Err(), "nobody needs to tell it")
				require.Equal(t, leaderelection.Suspended, c.Current().Role)
			}
			goOn()
			require.GreaterOrEqual(t, c.awaitLeader(t), token)
			token = c.Current().Leadership.Token()
			time.Sleep(time.Second)
		}
		require.Contains(t, c.told(), leaderelection.Suspended)
		second := stand(t, w.node(w.others(p)[0]), "e")
		time.Sleep(time.Second)
		l := c.Current().Leadership
		goOn := w.node(p).BlockLoop()
		require.Greater(t, second.awaitLeader(t), token)
		require.Error(t, l.Err(), "it was told before another one leads")
		goOn()
	})
}

// How long there is no leader, in fake time, with election timeouts of 200 ms.
func TestFailover(t *testing.T) {
	inWorld(t, 5, func(t *testing.T, w *world) {
		for range 4 {
			for _, ofTheLog := range []bool{false, true} {
				p := w.leader(t)
				if !ofTheLog {
					p = w.others(p)[0]
				}
				first := stand(t, w.node(p), "e")
				first.awaitLeader(t)
				second := stand(t, w.node(w.others(p)[1]), "e")
				time.Sleep(time.Second)
				heal := w.isolate(p)
				began := time.Now()
				second.awaitLeader(t)
				took := time.Since(began)
				require.GreaterOrEqual(t, took, 100*time.Millisecond)
				if ofTheLog { // up to two timeouts until another one leads the log, if votes are not split
					require.Less(t, took, 900*time.Millisecond)
				} else {
					require.Less(t, took, 280*time.Millisecond)
				}
				heal()
				require.NoError(t, second.Resign())
				first.awaitLeader(t)
				require.NoError(t, first.Resign())
			}
		}
	})
}

// A candidate that has never asked for a place has none to give back.
func TestResignBeforeStanding(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.leader(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e, err := raftlog.NewElection(w.node(w.peers[0]), "e", raftlog.WithContext(ctx))
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, e.ElectLeader())
		require.Zero(t, time.Since(began))
		require.NoError(t, e.Resign())
	})
}

// Resign returns in time where nobody confirms it, whatever else there is to look at meanwhile.
func TestResignWithoutAMajority(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.leader(t)
		defer w.isolate(p)()
		var all []*candidate
		for range 20 {
			all = append(all, stand(t, w.node(p), "e"))
		}
		synctest.Wait()
		began := time.Now()
		var resigned sync.WaitGroup
		for _, c := range all {
			resigned.Go(func() { _ = c.Resign() })
		}
		resigned.Wait()
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
	})
}

// Where an election is over, a candidate is told, and one that resigns leaves, at a peer whose
// state machine stands, too.
func TestCandidatesWhereTheStateMachineStands(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.others(w.leader(t))[0]
		require.NoError(t, raftlog.DeleteElection(within(t, time.Minute), w.node(p), "over"))
		require.NoError(t, w.stop(p))
		goOn := make(chan struct{})
		defer close(goOn)
		w.start(p, func(c *raftlog.Config) { c.StateMachine = standing{c.StateMachine, goOn} })
		w.propose(t, w.others(p)[0], "it waits for this")
		time.Sleep(time.Second)
		began := time.Now()
		c := stand(t, w.node(p), "over")
		select {
		case <-c.ended:
			require.ErrorIs(t, c.err, leaderelection.ErrElectionOver)
		case <-time.After(time.Minute):
			t.Error("it is not told")
		}
		require.Less(t, time.Since(began), time.Second)
		c = stand(t, w.node(p), "e")
		synctest.Wait()
		require.NoError(t, c.Resign())
		require.Less(t, time.Since(began), time.Second)
	})
}
