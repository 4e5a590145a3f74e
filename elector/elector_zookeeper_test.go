package elector

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// session is the session timeout of the electors in these tests.
const session = 4 * time.Second

// member is an Elector with a separate connection.
type member struct {
	journal  *journal
	srv      *zktest.Server
	name     string
	conn     *zk.Conn
	elector  *Elector
	stop     context.CancelFunc
	done     chan error // receives the result of Run
	isolated atomic.Bool
	stopped  atomic.Bool // stop was called
}

// runOnZooKeeper calls test in a bubble with a ZooKeeper server.
func runOnZooKeeper(t *testing.T, test func(h *journal, srv *zktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		t.Cleanup(func() {
			time.Sleep(time.Minute) // lets requests in flight end before the connections are closed
		})
		time.Sleep(time.Second)
		test(&journal{T: t}, srv)
	})
}

// join starts an Elector, and waits until it has joined the election. configure, which may be nil, can
// change the fields of the Elector first.
func join(h *journal, srv *zktest.Server, name string, configure func(m *member), opts ...leaderelection.Option) *member {
	h.Helper()
	m := &member{journal: h, srv: srv, name: name, done: make(chan error, 1)}
	conn, _, err := srv.Connect(session, zk.WithDialer(m.dial))
	require.NoError(h, err)
	m.conn = conn
	opts = append(opts, leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(session))
	opts = opts[:len(opts):len(opts)]
	m.elector = &Elector{
		NewCandidate: func(ctx context.Context) (leaderelection.Candidate, error) {
			return leaderelection.NewElection(conn, "/election", append(opts, leaderelection.WithContext(ctx))...)
		},
		Begin: func(context.Context, *leaderelection.Leadership) error { h.record("%s begins", name); return nil },
		End: func(_ context.Context, l *leaderelection.Leadership) error {
			if m.stopped.Load() && l.Err() != nil {
				h.Errorf("%s has resigned before End", name)
			}
			h.record("%s ends", name)
			return nil
		},
		Error: func(context.Context, *leaderelection.Leadership, error) error { h.record("%s error", name); return nil },
		Work:  m.work,
	}
	if configure != nil {
		configure(m)
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = func() { m.stopped.Store(true); stop() }
	go func() { m.done <- m.elector.Run(ctx) }()
	h.Cleanup(func() {
		m.heal()
		stop()
	})
	h.wait(time.Second)
	return m
}

// work implements Work. It requires that no other member works, and that tokens increase.
func (m *member) work(ctx context.Context, l *leaderelection.Leadership) error {
	m.journal.beginWork(m.name, l.Token())
	defer m.journal.endWork(m.name)
	<-ctx.Done()
	return ctx.Err()
}

// isolate drops everything that the member and the server send to each other.
func (m *member) isolate() {
	m.isolated.Store(true)
	m.srv.Blackhole(zktest.BothWays, m.conn.SessionID())
}

func (m *member) heal() {
	m.isolated.Store(false)
	m.srv.Heal(m.conn.SessionID())
}

func (m *member) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if m.isolated.Load() {
		return nil, errors.New("the network is partitioned")
	}
	return m.srv.Dialer()(network, address, timeout)
}

// TestElectorOnZooKeeper_TakesTurns checks that the electors lead one after another, and that the next elector
// leads immediately, without waiting for a timeout.
func TestElectorOnZooKeeper_TakesTurns(t *testing.T) {
	runOnZooKeeper(t, func(h *journal, srv *zktest.Server) {
		a, b, c := join(h, srv, "a", nil), join(h, srv, "b", nil), join(h, srv, "c", nil)
		h.requireEvents("a begins")
		begin := time.Now()
		a.stop()
		require.NoError(t, <-a.done)
		h.requireEvents("a begins", "a ends", "b begins")
		b.stop()
		require.NoError(t, <-b.done)
		h.requireEvents("a begins", "a ends", "b begins", "b ends", "c begins")
		require.Equal(t, StateLeader, c.elector.Current().State)
		require.Equal(t, begin, time.Now())
		c.stop()
		require.NoError(t, <-c.done)
	})
}

// TestElectorOnZooKeeper_PartitionedLeaderEndsFirst checks that a partitioned leader calls End before the next
// leader calls Begin, and joins the election again after the partition.
func TestElectorOnZooKeeper_PartitionedLeaderEndsFirst(t *testing.T) {
	runOnZooKeeper(t, func(h *journal, srv *zktest.Server) {
		a := join(h, srv, "a", nil)
		join(h, srv, "b", nil)
		a.isolate()
		h.wait(20 * time.Second)
		h.requireEvents("a begins", "a ends", "b begins")
		a.heal()
		h.wait(5 * time.Second)
		h.requireEvents("a begins", "a ends", "b begins", "a error") // the session of a has expired
		require.Equal(t, StateError, a.elector.Current().State)
		require.ErrorIs(t, a.elector.Current().Err, leaderelection.ErrSessionExpired)
		h.wait(30 * time.Second)
		require.Equal(t, StateNotLeader, a.elector.Current().State)
		require.NotEmpty(t, a.elector.Current().Candidate.NowFollowing, "it is queued again")
	})
}

// TestElectorOnZooKeeper_SuspendedLeaderResumes checks that a leader whose lease has expired calls Begin again,
// as the same candidate, after ZooKeeper has confirmed the lease.
func TestElectorOnZooKeeper_SuspendedLeaderResumes(t *testing.T) {
	runOnZooKeeper(t, func(h *journal, srv *zktest.Server) {
		a := join(h, srv, "a", func(m *member) { m.elector.Work = nil })
		token := a.elector.Current().Candidate.Leadership.Token()
		a.isolate()
		h.wait(2500 * time.Millisecond)
		h.requireEvents("a begins", "a ends")
		a.heal()
		h.wait(10 * time.Second)
		h.requireEvents("a begins", "a ends", "a begins")
		require.Equal(t, token, a.elector.Current().Candidate.Leadership.Token())
	})
}

// TestElectorOnZooKeeper_ReturnsIfElectionEnds checks that Run returns after the election was deleted, instead
// of joining again.
func TestElectorOnZooKeeper_ReturnsIfElectionEnds(t *testing.T) {
	runOnZooKeeper(t, func(h *journal, srv *zktest.Server) {
		a, b := join(h, srv, "a", nil), join(h, srv, "b", nil)
		require.NoError(t, leaderelection.DeleteElection(a.conn, "/election"))
		for _, m := range []*member{a, b} {
			require.ErrorIs(t, <-m.done, leaderelection.ErrElectionOver)
		}
		h.requireEvents("a begins", "a ends")
	})
}

// TestElectorOnZooKeeper_RejoinsAfterDeletion checks that an elector joins again after ErrorWait if an operator
// has deleted its znode.
func TestElectorOnZooKeeper_RejoinsAfterDeletion(t *testing.T) {
	runOnZooKeeper(t, func(h *journal, srv *zktest.Server) {
		a := join(h, srv, "a", nil)
		require.NoError(t, a.conn.Delete(a.elector.Current().Candidate.CandidateID, -1))
		h.wait(time.Second)
		h.requireEvents("a begins", "a ends", "a error")
		h.wait(30 * time.Second)
		h.requireEvents("a begins", "a ends", "a error", "a begins")
	})
}

// TestLeadOnZooKeeper_LeavesNoCandidate checks that no candidate remains after Lead has returned, and that
// tokens increase.
func TestLeadOnZooKeeper_LeavesNoCandidate(t *testing.T) {
	runOnZooKeeper(t, func(h *journal, srv *zktest.Server) {
		conn, _, err := srv.Connect(session)
		require.NoError(t, err)
		var tokens []int64
		for range 3 {
			c, err := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode())
			require.NoError(t, err)
			require.NoError(t, Lead(h.Context(), c, func(ctx context.Context, l *leaderelection.Leadership) error {
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

// TestLeadOnZooKeeper_WaitsForServers checks that Lead waits for ZooKeeper, which starts an hour after the
// program, and continues after ZooKeeper has lost its data an hour later.
func TestLeadOnZooKeeper_WaitsForServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		srv.Stop()
		conn, _, err := zkdial.Connect([]string{srv.Name()}, 4*time.Second, zkdial.WithDialer(srv.Dialer()))
		require.NoError(t, err)
		c, err := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode(), leaderelection.WithRejoin())
		require.NoError(t, err)
		leadership := make(chan error) // receives nil when a leadership begins, and its error when it ends
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- Lead(ctx, c, func(ctx context.Context, _ *leaderelection.Leadership) error {
				leadership <- nil
				<-ctx.Done()
				leadership <- context.Cause(ctx)
				return nil
			})
		}()
		select {
		case <-leadership:
			require.Fail(t, "it leads without ZooKeeper")
		case <-time.After(time.Hour):
		}
		srv.Restart(zktest.KeepTree)
		<-leadership
		time.Sleep(time.Hour)
		srv.Restart(zktest.LoseAll)
		require.Error(t, <-leadership)
		<-leadership
		stop()
		<-leadership
		require.NoError(t, <-done)
		conn.Close()
		time.Sleep(time.Second)
	})
}
