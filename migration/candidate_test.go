package migration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/migration"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// scriptedCandidate is a candidate whose role is set by the test.
type scriptedCandidate struct {
	candidacy.Candidacy
	requested chan struct{}
	listened  atomic.Bool // whether ResignRequested was called
	resigned  time.Time   // when Resign was called first
	closed    bool
	endErr    error
	resignErr error // the error that Resign returns
}

func newScripted() *scriptedCandidate {
	return &scriptedCandidate{Candidacy: candidacy.New(context.Background(), nil), requested: make(chan struct{})}
}

func (s *scriptedCandidate) ElectLeader() error {
	return s.Run(func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

func (s *scriptedCandidate) Resign() error {
	if s.resigned.IsZero() {
		s.resigned = time.Now()
	}
	s.Stop(leaderelection.ErrResigned)
	<-s.Done()
	return s.resignErr
}

func (s *scriptedCandidate) EndElection() error {
	return s.End("end", func() error { return s.endErr })
}

func (s *scriptedCandidate) ResignRequested() <-chan struct{} {
	s.listened.Store(true)
	return s.requested
}

// closableCandidate is a scripted candidate with a method Close.
type closableCandidate struct{ *scriptedCandidate }

func (c closableCandidate) Close() error {
	c.closed = true
	return nil
}

// follow makes the candidate a follower of another candidate.
func (s *scriptedCandidate) follow(id, predecessor string) {
	s.Join(id)
	s.Publish(leaderelection.Status{NowFollowing: predecessor})
	synctest.Wait()
}

// lead makes the candidate the leader.
func (s *scriptedCandidate) lead(token int64, lease time.Duration) {
	deadline := time.Now().Add(lease)
	s.Lead(token, func() time.Time { return deadline })
	synctest.Wait()
}

// candidatePair is a migration.Candidate whose candidates of both elections are scripted.
type candidatePair struct {
	*migration.Candidate
	*testing.T
	mu         sync.Mutex           // guards olds while it grows
	olds, news []*scriptedCandidate // the candidates in the order of their creation
	newErr     error                // the error that the function of the new election returns, or nil
	result     chan error           // receives the result of ElectLeader
}

// runPair starts a migration.Candidate in a bubble, calls f, and then resigns the
// candidate.
func runPair(t *testing.T, f func(*candidatePair), opts ...migration.Option) {
	synctest.Test(t, func(t *testing.T) {
		p := &candidatePair{T: t, result: make(chan error, 1)}
		var err error
		p.Candidate, err = migration.NewCandidate(t.Context(), func(context.Context) (leaderelection.Candidate, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.olds = append(p.olds, newScripted())
			return closableCandidate{p.olds[len(p.olds)-1]}, nil
		}, func(ctx context.Context) (leaderelection.Candidate, error) {
			if p.newErr != nil {
				return nil, p.newErr
			}
			p.news = append(p.news, newScripted())
			return p.news[len(p.news)-1], nil
		}, opts...)
		require.NoError(t, err)
		go func() { p.result <- p.ElectLeader() }()
		synctest.Wait()
		f(p)
		_ = p.Resign()
		synctest.Wait()
		for _, s := range p.olds {
			require.True(t, s.closed, "a candidate was not closed")
		}
	})
}

// leadBoth lets the newest candidates lead, and returns the leadership.
func (p *candidatePair) leadBoth() *leaderelection.Leadership {
	p.olds[len(p.olds)-1].follow("old/1", "old/0")
	p.olds[len(p.olds)-1].lead(int64(100+len(p.olds)), time.Hour)
	p.news[len(p.news)-1].follow("new/1", "new/0")
	p.news[len(p.news)-1].lead(7, 2*time.Hour)
	return p.Current().Leadership
}

// TestCandidate_JoinsNewElectionAfterLeadingOld checks that the candidate joins the new election only when it
// leads the old election, leads only when it leads both, and has the token and the deadline of the old
// election.
func TestCandidate_JoinsNewElectionAfterLeadingOld(t *testing.T) {
	runPair(t, func(p *candidatePair) {
		p.olds[0].follow("old/1", "old/0")
		require.Equal(p, leaderelection.Status{CandidateID: "old/1", NowFollowing: "old/0"}, p.Current())
		require.Empty(p, p.news)
		p.olds[0].lead(5, time.Hour)
		require.Len(p, p.news, 1)
		p.news[0].follow("new/1", "new/0")
		require.Equal(p, leaderelection.Status{CandidateID: "old/1", NowFollowing: "new/0", WasFollowing: ""}, p.Current())
		p.news[0].lead(3, time.Minute)
		l := p.Current().Leadership
		require.NotNil(p, l)
		require.Equal(p, int64(5), l.Token())
		require.Equal(p, p.news[0].Leadership().Deadline(), l.Deadline())
		inOld, inNew := p.Leaderships(l)
		require.Same(p, p.olds[0].Leadership(), inOld)
		require.Same(p, p.news[0].Leadership(), inNew)
		inOld, inNew = p.Leaderships(inNew)
		require.Nil(p, inOld)
		require.Nil(p, inNew)
	})
}

// TestCandidate_ReportsNextInEitherElection checks that Status.Next is true exactly while the candidate is next
// in the election in which it waits.
func TestCandidate_ReportsNextInEitherElection(t *testing.T) {
	runPair(t, func(p *candidatePair) {
		old := p.olds[0]
		old.follow("old/1", "old/0")
		for _, next := range []bool{true, false, true} {
			old.Publish(leaderelection.Status{NowFollowing: "old/0", Next: next})
			synctest.Wait()
			require.Equal(p, next, p.Current().Next)
			require.Equal(p, "old/0", p.Current().NowFollowing)
		}
		old.lead(5, time.Hour)
		p.news[0].follow("new/1", "new/0")
		require.False(p, p.Current().Next)
		p.news[0].Publish(leaderelection.Status{NowFollowing: "new/0", Next: true})
		synctest.Wait()
		require.True(p, p.Current().Next)
		p.news[0].lead(3, time.Minute)
		require.Equal(p, leaderelection.Leader, p.Current().Role)
		require.False(p, p.Current().Next)
	})
}

// TestCandidate_RejoinsAfterLossOfEitherLeadership checks that the leadership ends after the loss of one of the
// two leaderships, that the candidate does not resign from the other election before the time of WithGrace, and
// that the candidate joins again.
func TestCandidate_RejoinsAfterLossOfEitherLeadership(t *testing.T) {
	reason := errors.New("lost")
	for name, lose := range map[string]func(*candidatePair){
		"old":              func(p *candidatePair) { p.olds[0].Revoke(reason) },
		"new":              func(p *candidatePair) { p.news[0].Revoke(reason) },
		"old, with status": func(p *candidatePair) { p.olds[0].Revoke(reason); p.olds[0].Publish(leaderelection.Status{}) },
		"new, suspended":   func(p *candidatePair) { p.news[0].Suspend(reason) },
		"old, two terms": func(p *candidatePair) {
			p.olds[0].Revoke(reason)
			p.olds[0].Lead(9, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			runPair(t, func(p *candidatePair) {
				l := p.leadBoth()
				at := time.Now()
				lose(p)
				synctest.Wait()
				require.ErrorIs(p, l.Err(), reason)
				require.Equal(p, at, time.Now())
				require.Equal(p, leaderelection.Follower, p.Current().Role)
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(p, 3*time.Second, p.olds[0].resigned.Sub(at))
				require.Equal(p, 3*time.Second, p.news[0].resigned.Sub(at))
				require.Len(p, p.olds, 2)
				require.NotSame(p, l, p.leadBoth())
			}, migration.WithGrace(3*time.Second))
		})
	}
}

// TestCandidate_LeavesIfItCannotJoinNewElection checks that a leader of the old election that has not joined
// the new election within the time of WithJoinLimit leaves the old election, so that other candidates can lead.
func TestCandidate_LeavesIfItCannotJoinNewElection(t *testing.T) {
	runPair(t, func(p *candidatePair) {
		p.olds[0].follow("old/1", "")
		p.olds[0].lead(1, time.Hour)
		at := time.Now()
		time.Sleep(time.Hour / 2)
		synctest.Wait()
		require.Equal(p, 20*time.Second, p.olds[0].resigned.Sub(at))
		require.Len(p, p.olds, 2)
		p.leadBoth()
		time.Sleep(time.Hour / 2)
		synctest.Wait()
		require.Equal(p, leaderelection.Leader, p.Current().Role)
	}, migration.WithJoinLimit(20*time.Second))
}

// TestCandidate_EndsWithErrorOfEitherElection checks that an error that ends the candidacy in one election also
// ends the candidacy in the other election, and is returned by ElectLeader.
func TestCandidate_EndsWithErrorOfEitherElection(t *testing.T) {
	failure := errors.New("failure")
	t.Run("old", func(t *testing.T) {
		runPair(t, func(p *candidatePair) {
			p.leadBoth()
			p.olds[0].Stop(failure)
			err := <-p.result
			require.ErrorIs(p, err, failure)
			require.NotErrorIs(p, err, migration.ErrNewElection)
			require.False(p, p.news[0].resigned.IsZero())
		})
	})
	t.Run("new", func(t *testing.T) {
		runPair(t, func(p *candidatePair) {
			p.olds[0].follow("old/1", "")
			p.olds[0].lead(1, time.Hour)
			p.news[0].Stop(failure)
			err := <-p.result
			require.ErrorIs(p, err, failure)
			require.ErrorIs(p, err, migration.ErrNewElection)
			require.ErrorContains(p, err, "new election")
			require.False(p, p.olds[0].resigned.IsZero())
		})
	})
	t.Run("creation", func(t *testing.T) {
		runPair(t, func(p *candidatePair) {
			p.newErr = failure
			p.olds[0].follow("old/1", "")
			p.olds[0].lead(1, time.Hour)
			require.ErrorIs(p, <-p.result, failure)
		})
	})
}

// TestCandidate_ForwardsResignRequests checks that a request to resign in one of the elections closes the
// channel of ResignRequested, and that the candidate listens to requests only if the program has called
// ResignRequested.
func TestCandidate_ForwardsResignRequests(t *testing.T) {
	for name, request := range map[string]func(*candidatePair){
		"old":  func(p *candidatePair) { close(p.olds[0].requested) },
		"new":  func(p *candidatePair) { close(p.news[0].requested) },
		"both": func(p *candidatePair) { close(p.olds[0].requested); close(p.news[0].requested) },
	} {
		t.Run(name, func(t *testing.T) {
			runPair(t, func(p *candidatePair) {
				p.leadBoth()
				require.False(p, p.olds[0].listened.Load() || p.news[0].listened.Load())
				request(p)
				<-p.ResignRequested()
				require.Equal(p, leaderelection.Leader, p.Current().Role)
				synctest.Wait()
				require.True(p, p.olds[0].listened.Load() && p.news[0].listened.Load())
				p.olds[0].Revoke(errors.New("lost"))
				time.Sleep(time.Minute)
				synctest.Wait()
				p.leadBoth()
				require.Len(p, p.olds, 2)
				require.True(p, p.olds[1].listened.Load() && p.news[1].listened.Load())
			})
		})
	}
}

// TestCandidate_EndElectionEndsBothElections checks that EndElection ends both elections, and returns the error
// of the old election.
func TestCandidate_EndElectionEndsBothElections(t *testing.T) {
	runPair(t, func(p *candidatePair) {
		p.olds[0].follow("old/1", "")
		failure := errors.New("failure")
		p.olds[0].endErr = failure
		require.ErrorIs(p, p.EndElection(), failure)
		require.Empty(p, p.news)
		p.olds[0].endErr = nil
		require.NoError(p, p.EndElection())
		require.ErrorIs(p, <-p.result, leaderelection.ErrElectionOver)
		require.Len(p, p.news, 1)
		require.ErrorIs(p, p.news[0].ElectLeader(), leaderelection.ErrElectionOver)
	})
}

// TestCandidate_ResignDoesNotWaitForCreation checks that Resign does not wait for a candidate whose creation
// hangs.
func TestCandidate_ResignDoesNotWaitForCreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newScripted()
		c, err := migration.NewCandidate(t.Context(), func(context.Context) (leaderelection.Candidate, error) { return old, nil },
			func(ctx context.Context) (leaderelection.Candidate, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}, migration.WithJoinLimit(time.Hour))
		require.NoError(t, err)
		result := make(chan error, 1)
		go func() { result <- c.ElectLeader() }()
		old.follow("old/1", "")
		old.lead(1, time.Hour)
		at := time.Now()
		require.NoError(t, c.Resign())
		require.NoError(t, <-result)
		require.Equal(t, at, time.Now())
	})
}

// TestCandidate_ResignBeforeStartResignsOldCandidate checks that Resign before ElectLeader resigns and closes
// the candidate of the old election.
func TestCandidate_ResignBeforeStartResignsOldCandidate(t *testing.T) {
	old := newScripted()
	create := func(context.Context) (leaderelection.Candidate, error) { return closableCandidate{old}, nil }
	c, err := migration.NewCandidate(t.Context(), create, create)
	require.NoError(t, err)
	require.NoError(t, c.Resign())
	require.False(t, old.resigned.IsZero())
	require.True(t, old.closed)
	require.NoError(t, c.ElectLeader())
}

// TestNewCandidate_RejectsInvalidArguments checks that NewCandidate rejects invalid arguments, and returns the
// error of the function that creates the old candidate.
func TestNewCandidate_RejectsInvalidArguments(t *testing.T) {
	failure := errors.New("failure")
	valid := func(context.Context) (leaderelection.Candidate, error) { return newScripted(), nil }
	fails := func(context.Context) (leaderelection.Candidate, error) { return nil, failure }
	none := func(context.Context) (leaderelection.Candidate, error) { return nil, nil }
	for text, c := range map[string]struct {
		old, new migration.NewCandidateFunc
		opt      migration.Option
		err      error
	}{
		"is nil":                {valid, nil, migration.WithGrace(0), leaderelection.ErrInvalid},
		"an option is nil":      {valid, valid, nil, leaderelection.ErrInvalid},
		"WithGrace(-1ns)":       {valid, valid, migration.WithGrace(-1), leaderelection.ErrInvalid},
		"WithJoinLimit(0s)":     {valid, valid, migration.WithJoinLimit(0), leaderelection.ErrInvalid},
		"WithLogger(nil)":       {valid, valid, migration.WithLogger(nil), leaderelection.ErrInvalid},
		"old election: failure": {fails, valid, migration.WithGrace(0), failure},
		"no candidate":          {none, valid, migration.WithGrace(0), leaderelection.ErrInvalid},
	} {
		_, err := migration.NewCandidate(t.Context(), c.old, c.new, c.opt)
		require.ErrorIs(t, err, c.err, text)
		require.ErrorContains(t, err, text)
	}
}

// blockingHandler is a slog.Handler that blocks until gate is closed, if gate is not nil.
type blockingHandler struct {
	slog.Handler
	gate atomic.Pointer[chan struct{}]
}

func (h *blockingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *blockingHandler) Handle(context.Context, slog.Record) error {
	if gate := h.gate.Load(); gate != nil {
		<-*gate
	}
	return nil
}

// TestCandidate_IgnoresStaleStatus checks that a status that one election has sent before the leadership in the
// other election ended does not make the candidate lead.
func TestCandidate_IgnoresStaleStatus(t *testing.T) {
	for range 20 { // the select chooses one of two ready cases at random
		h := &blockingHandler{}
		runPair(t, func(p *candidatePair) {
			events := p.Events()
			p.olds[0].follow("old/1", "")
			p.olds[0].lead(1, time.Hour)
			gate := make(chan struct{})
			h.gate.Store(&gate)
			p.news[0].Join("new/1")
			p.news[0].Publish(leaderelection.Status{NowFollowing: "new/0"})
			time.Sleep(time.Second) // the candidate has logged by then that it follows new/0
			deadline := time.Now().Add(time.Hour)
			p.news[0].Lead(2, func() time.Time { return deadline })
			p.olds[0].Revoke(errors.New("lost"))
			close(gate)
			synctest.Wait()
			_ = p.Resign()
			for e := range events {
				require.NotEqual(p, event.Elected, e.Kind)
			}
		}, migration.WithLogger(slog.New(h)))
	}
}

// TestCandidate_EndsLeadershipBeforeSessionIsClosed checks that the leadership has ended before Close of a
// connection of either election ends the session, after which another candidate may lead.
func TestCandidate_EndsLeadershipBeforeSessionIsClosed(t *testing.T) {
	for name, closed := range map[string]int{"old": 0, "new": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.Start(t)
				var conns []*zk.Conn
				var create []migration.NewCandidateFunc
				var led *leaderelection.Leadership
				var ends []error // the error of the leadership each time a session is closed
				dial := bubble.WatchClose(srv.Dialer(), func() { ends = append(ends, led.Err()) })
				for _, node := range []string{"/old", "/new"} {
					conn, _, err := zkdial.Connect([]string{srv.Name()}, 4*time.Second, zkdial.WithDialer(dial))
					require.NoError(t, err)
					defer conn.Close()
					conns = append(conns, conn)
					create = append(create, func(context.Context) (leaderelection.Candidate, error) {
						return leaderelection.NewElection(conn, node, leaderelection.WithCreateNode())
					})
				}
				c, err := migration.NewCandidate(t.Context(), create[0], create[1])
				require.NoError(t, err)
				result := make(chan error, 1)
				go func() { result <- c.ElectLeader() }()
				status := <-c.Status()
				for status.Leadership == nil {
					status = <-c.Status()
				}
				led = status.Leadership
				conns[closed].Close()
				require.Len(t, ends, 1)
				require.ErrorIs(t, ends[0], leaderelection.ErrConnClosed)
				_ = c.Resign()
				<-result
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestCandidate_LeavesIfItNeverLeadsNewElection checks that a leader of the old election that has joined the
// new election, but does not become its leader, leaves the old election after some time.
func TestCandidate_LeavesIfItNeverLeadsNewElection(t *testing.T) {
	runPair(t, func(p *candidatePair) {
		p.olds[0].follow("old/1", "")
		p.olds[0].lead(1, 24*time.Hour)
		at := time.Now()
		time.Sleep(9 * time.Second)
		p.news[0].follow("new/2", "new/1")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(p, 69*time.Second, p.olds[0].resigned.Sub(at))
		require.Len(p, p.olds, 2)
	})
}

// TestCandidate_UnreachableBackendDoesNotEndCandidacy checks that the candidacy does not end when a backend is
// unreachable for some time, and that the candidate pauses before it joins the old election again.
func TestCandidate_UnreachableBackendDoesNotEndCandidacy(t *testing.T) {
	runPair(t, func(p *candidatePair) {
		p.newErr = fmt.Errorf("no answer: %w", leaderelection.ErrUnreachable)
		for i := range 3 { // the candidate leads again immediately, because no other candidate waits
			p.olds[i].follow("old/1", "")
			p.olds[i].lead(1, time.Hour)
			p.mu.Lock()
			require.Len(p, p.olds, i+1, "the candidate joins again without a pause")
			p.mu.Unlock()
			time.Sleep(time.Second)
			synctest.Wait()
			require.Len(p, p.olds, i+2)
		}
		p.newErr = nil
		p.leadBoth()
		require.Equal(p, leaderelection.Leader, p.Current().Role)
	})
}

// TestCandidate_ResignReturnsUnconfirmedErrors checks that Resign returns an error for each resignation that is
// not confirmed, including those of earlier attempts, and none for a resignation that is confirmed.
func TestCandidate_ResignReturnsUnconfirmedErrors(t *testing.T) {
	runPair(t, func(p *candidatePair) {
		p.leadBoth()
		p.news[0].resignErr = leaderelection.ErrUnconfirmed
		p.olds[0].Revoke(errors.New("lost"))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(p, p.olds, 2)
		err := p.Resign()
		require.ErrorIs(p, err, leaderelection.ErrUnconfirmed)
		require.ErrorContains(p, err, "new election")
		p.news[0].resignErr = nil
		require.NoError(p, p.Resign())
	})
}
