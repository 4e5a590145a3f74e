package elector

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const session = 4 * time.Second

// company is several electors on one ZooKeeper server, in fake time.
type company struct {
	*testing.T
	srv   *zktest.Server
	began time.Time

	mu     sync.Mutex
	events []string
	acting map[string]bool // whose Work runs
	token  int64           // the greatest that has worked
}

// member is one of them, in a program of its own.
type member struct {
	*company
	name string
	conn *zk.Conn
	e    *Elector
	stop context.CancelFunc
	done chan error
	cut  atomic.Bool

	stopped atomic.Bool // while it was leading
}

// cutOff loses whatever the program and the server send to each other.
func (m *member) cutOff() {
	m.cut.Store(true)
	m.srv.Blackhole(zktest.BothWays, m.conn.SessionID())
}

func (m *member) heal() {
	m.cut.Store(false)
	m.srv.Heal(m.conn.SessionID())
}

func (m *member) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if m.cut.Load() {
		return nil, errors.New("cut off")
	}
	return m.srv.Dialer()(network, address, timeout)
}

func meet(t *testing.T, f func(w *company)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &company{T: t, srv: zktest.Start(t), acting: map[string]bool{}}
		t.Cleanup(func() {
			time.Sleep(time.Minute) // nothing is under way when the clients are closed
		})
		time.Sleep(time.Second)
		w.began = time.Now()
		f(w)
	})
}

func (w *company) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf(format, args...))
}

func (w *company) happened(events ...string) {
	w.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(w, events, w.events)
}

func (w *company) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// acts is a Work that is alone, by fences and in time.
func (m *member) acts(ctx context.Context, l *leaderelection.Leadership) error {
	m.mu.Lock()
	if len(m.acting) > 0 {
		m.Errorf("%s works beside %v", m.name, m.acting)
	}
	if l.Token() <= m.token {
		m.Errorf("%s works with token %d after %d", m.name, l.Token(), m.token)
	}
	m.acting[m.name], m.token = true, l.Token()
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	delete(m.acting, m.name)
	m.mu.Unlock()
	return ctx.Err()
}

// join has another elector take part, and lets it find its place. set may change it.
func (w *company) join(name string, set func(m *member), opts ...leaderelection.Option) *member {
	w.Helper()
	m := &member{company: w, name: name, done: make(chan error, 1)}
	conn, _, err := w.srv.Connect(session, zk.WithDialer(m.dial))
	require.NoError(w, err)
	m.conn = conn
	opts = append(opts, leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(session))
	opts = opts[:len(opts):len(opts)]
	m.e = &Elector{
		NewCandidate: func(ctx context.Context) (leaderelection.Candidate, error) {
			return leaderelection.NewElection(conn, "/election", append(opts, leaderelection.WithContext(ctx))...)
		},
		Begin: func(context.Context, *leaderelection.Leadership) error { w.note("%s begins", name); return nil },
		End: func(_ context.Context, l *leaderelection.Leadership) error {
			if m.stopped.Load() && l.Err() != nil {
				w.Errorf("%s has resigned before End", name)
			}
			w.note("%s ends", name)
			return nil
		},
		Error: func(context.Context, *leaderelection.Leadership, error) error { w.note("%s error", name); return nil },
		Work:  m.acts,
	}
	if set != nil {
		set(m)
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = func() { m.stopped.Store(true); stop() }
	go func() { m.done <- m.e.Run(ctx) }()
	w.Cleanup(func() {
		m.heal()
		stop()
	})
	w.pass(time.Second)
	return m
}

func TestElectorsTakeTurns(t *testing.T) {
	meet(t, func(w *company) {
		a, b, c := w.join("a", nil), w.join("b", nil), w.join("c", nil)
		w.happened("a begins")
		a.stop()
		require.NoError(t, <-a.done)
		w.happened("a begins", "a ends", "b begins")
		b.stop()
		require.NoError(t, <-b.done)
		w.happened("a begins", "a ends", "b begins", "b ends", "c begins")
		require.Equal(t, StateLeader, c.e.Current().State)
		c.stop()
		require.NoError(t, <-c.done)
	})
}

// A leader that is cut off has ended before the next begins.
func TestPartitionedLeaderEndsFirst(t *testing.T) {
	meet(t, func(w *company) {
		a := w.join("a", nil)
		w.join("b", nil)
		a.cutOff()
		w.pass(20 * time.Second)
		w.happened("a begins", "a ends", "b begins")
		a.heal()
		w.pass(5 * time.Second)
		w.happened("a begins", "a ends", "b begins", "a error") // its session is over
		require.Equal(t, StateError, a.e.Current().State)
		require.ErrorIs(t, a.e.Current().Err, leaderelection.ErrSessionExpired)
		w.pass(30 * time.Second)
		require.Equal(t, StateNotLeader, a.e.Current().State)
		require.NotEmpty(t, a.e.Current().Candidate.NowFollowing, "in line again")
	})
}

// A lapse of the proof and its return: the same candidate, with the same token.
func TestSuspendedLeaderBeginsAgain(t *testing.T) {
	meet(t, func(w *company) {
		a := w.join("a", func(m *member) { m.e.Work = nil })
		token := a.e.Current().Candidate.Leadership.Token()
		a.cutOff()
		w.pass(2500 * time.Millisecond)
		w.happened("a begins", "a ends")
		a.heal()
		w.pass(10 * time.Second)
		w.happened("a begins", "a ends", "a begins")
		require.Equal(t, token, a.e.Current().Candidate.Leadership.Token())
	})
}

// The election is ended for all: nobody tries again.
func TestEndedElectionEndsElectors(t *testing.T) {
	meet(t, func(w *company) {
		a, b := w.join("a", nil), w.join("b", nil)
		require.NoError(t, leaderelection.DeleteElection(a.conn, "/election"))
		for _, m := range []*member{a, b} {
			require.ErrorIs(t, <-m.done, leaderelection.ErrElectionOver)
		}
		w.happened("a begins", "a ends")
	})
}

// The znode is deleted by an operator: the elector stands down for a while.
func TestDeletedCandidateComesBack(t *testing.T) {
	meet(t, func(w *company) {
		a := w.join("a", nil)
		require.NoError(t, a.conn.Delete(a.e.Current().Candidate.CandidateID, -1))
		w.pass(time.Second)
		w.happened("a begins", "a ends", "a error")
		w.pass(30 * time.Second)
		w.happened("a begins", "a ends", "a error", "a begins")
	})
}

func TestLeadOnZooKeeper(t *testing.T) {
	meet(t, func(w *company) {
		conn, _, err := w.srv.Connect(session)
		require.NoError(t, err)
		var tokens []int64
		for range 3 {
			c, err := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode())
			require.NoError(t, err)
			require.NoError(t, Lead(w.Context(), c, func(ctx context.Context, l *leaderelection.Leadership) error {
				tokens = append(tokens, l.Token())
				return nil
			}))
		}
		require.IsIncreasing(t, tokens)
		children, _, err := conn.Children("/election")
		require.NoError(t, err)
		require.Empty(t, children)
	})
}
