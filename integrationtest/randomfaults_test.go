package integrationtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

var (
	faultsSeed     = flag.Uint64("seed", 0, "seed of the random faults; if 0, the time")
	faultsDuration = flag.Duration("faults.duration", 40*time.Second, "duration of the random faults")
)

// These times have the proportions of the default settings (a tick of 2 s, sessions of 4 s, and a server that is cut
// off serves reads for 10 s), but are half as long or less. A server that is cut off from its quorum answers its
// clients for longer than their sessions last.
const (
	faultsTick      = 500 * time.Millisecond
	faultsSyncLimit = 6
	faultsTimeout   = 2 * time.Second
	// regainLimit is how long it may take until a candidate leads after a fault has ended. If the machine is not
	// busy, a third of this time suffices for a session timeout, an election among the servers, and the reconnect of
	// the client library, which pauses for a second after each round of attempts.
	regainLimit = 45 * time.Second
)

// contestant joins the election again and again. It reaches each server through a separate proxy.
type contestant struct {
	name     string
	conn     *client // connects through a separate proxy of each server
	history  *history
	mu       sync.Mutex
	election *leaderelection.Election
	terms    sync.WaitGroup
}

// runCandidacies starts a new candidacy whenever the previous one has ended, until ctx is done.
func (c *contestant) runCandidacies(ctx context.Context, node, register string) {
	defer c.terms.Wait()
	for ctx.Err() == nil {
		e, err := leaderelection.NewElection(c.conn.Conn, node,
			leaderelection.WithName(c.name), leaderelection.WithRejoin(),
			leaderelection.WithSessionTimeout(faultsTimeout), leaderelection.WithContext(ctx))
		if err != nil {
			c.history.addRecord("%s: NewElection: %v", c.name, err)
			if !errors.Is(err, leaderelection.ErrUnreachable) {
				return // NewElection has failed because the context is done
			}
			continue // NewElection has waited for a session timeout before it has failed
		}
		c.mu.Lock()
		c.election = e
		c.mu.Unlock()
		ended := make(chan error, 1)
		go func() { ended <- e.ElectLeader() }()
		for s := range e.Status() {
			switch {
			case s.Role == leaderelection.Leader:
				t := c.history.addTerm(c.name, s.CandidateID, s.Leadership)
				c.terms.Go(func() { c.writeWhileLeader(e, s.Leadership, t, register) })
			default:
				c.history.addRecord("%s: %v", c.name, s)
			}
		}
		c.history.addRecord("%s: ElectLeader: %v", c.name, <-ended)
	}
}

// writeWhileLeader performs fenced writes until the leadership ends.
func (c *contestant) writeWhileLeader(e *leaderelection.Election, l *leaderelection.Leadership, t *term, register string) {
	write := func() error {
		answer, err := l.Multi(&zk.SetDataRequest{Path: register, Data: strconv.AppendInt(nil, l.Token(), 10), Version: -1})
		if err == nil {
			c.history.addWrite(c.name, l.Token(), answer[0].Stat.Mzxid)
		}
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	finished := make(chan struct{})
	go func() { // use a separate goroutine, because a write may last as long as the connection is down
		defer close(finished)
		for l.Err() == nil {
			if err := write(); err != nil && !errors.Is(err, leaderelection.ErrNotLeader) && !errors.Is(err, leaderelection.ErrUnconfirmed) {
				c.history.addRecord("%s: fenced write: %v", c.name, err)
			}
			select {
			case <-tick.C:
			case <-l.Done():
			}
		}
	}()
	<-l.Done()
	c.history.endTerm(t, l.Err())
	<-finished
}

// resignCurrent calls Resign for the current candidacy.
func (c *contestant) resignCurrent() error {
	c.mu.Lock()
	e := c.election
	c.mu.Unlock()
	if e == nil {
		return nil
	}
	return e.Resign()
}

// isLeader reports whether the contestant has a leadership that has not ended.
func (c *contestant) isLeader() bool { return c.history.currentLeader() == c.name }

// faultSchedule runs an election while it injects random faults.
type faultSchedule struct {
	t           *testing.T
	ens         *ensemble.Ensemble
	node        string
	admin       *client // connects through proxies without faults
	contestants []*contestant
	history     *history
	rand        *rand.Rand
	calls       sync.WaitGroup
}

// fault is a kind of fault. The function inject starts the fault, and returns a function that repairs it.
type fault struct {
	name   string
	inject func(*faultSchedule) (what string, repair func() error, err error)
}

func serverFault(inject, repair func(*ensemble.Ensemble, int) error) func(*faultSchedule) (string, func() error, error) {
	return func(s *faultSchedule) (string, func() error, error) {
		i := s.chooseServer()
		return fmt.Sprintf("server %d", i), func() error { return repair(s.ens, i) }, inject(s.ens, i)
	}
}

func clientFault(inject, repair func(zkproxy.Network)) func(*faultSchedule) (string, func() error, error) {
	return func(s *faultSchedule) (string, func() error, error) {
		c := s.chooseContestant()
		inject(c.conn.Network)
		return c.name, func() error {
			repair(c.conn.Network)
			return nil
		}, nil
	}
}

var faults = []fault{
	{"kill", serverFault((*ensemble.Ensemble).Kill, (*ensemble.Ensemble).Start)},
	{"pause", serverFault((*ensemble.Ensemble).Pause, (*ensemble.Ensemble).Resume)},
	{"cut off", serverFault((*ensemble.Ensemble).CutOff, (*ensemble.Ensemble).Heal)},
	{"break connections of", clientFault(zkproxy.Network.Drop, zkproxy.Network.Restore)},
	{"refuse connections of", clientFault(zkproxy.Network.Cut, zkproxy.Network.Restore)},
	{"freeze and reset the connections of", clientFault(zkproxy.Network.Freeze, zkproxy.Network.Restore)},
	{"freeze and thaw the connections of", clientFault(zkproxy.Network.Freeze, zkproxy.Network.Thaw)},
	{"expire session of", expireSessionFault},
	{"resign", resignFault},
}

// expireSessionFault makes the ensemble end a session. In reality, ZooKeeper never ends a session while the owner of
// the session still relies on it, so expireSessionFault first freezes the owner's network until the owner has lost
// the leadership.
func expireSessionFault(s *faultSchedule) (string, func() error, error) {
	c := s.chooseContestant()
	c.conn.Network.Freeze()
	limit := time.Now().Add(faultsTimeout)
	for c.isLeader() {
		if time.Now().After(limit) {
			return c.name, func() error { return nil }, fmt.Errorf("%s leads for %v without a connection", c.name, faultsTimeout)
		}
		s.pause(5 * time.Millisecond)
	}
	if err := c.conn.Network.ExpireSession(c.conn.SessionID()); err != nil {
		s.history.addRecord("the session of %s was not ended: %v", c.name, err) // the server may be down
	}
	return c.name, func() error {
		c.conn.Network.Restore()
		return nil
	}, nil
}

func resignFault(s *faultSchedule) (string, func() error, error) {
	c := s.chooseContestant()
	s.calls.Go(func() {
		if err := c.resignCurrent(); err != nil {
			s.history.addRecord("%s: Resign: %v", c.name, err)
		}
	})
	return c.name, func() error { return nil }, nil
}

// chooseServer returns a random server, often the leader of the ensemble.
func (s *faultSchedule) chooseServer() int {
	if s.rand.IntN(3) == 0 {
		if i, err := s.ens.Leader(); err == nil {
			return i
		}
	}
	return s.rand.IntN(s.ens.Servers())
}

// chooseContestant returns a random contestant, often the contestant that leads.
func (s *faultSchedule) chooseContestant() *contestant {
	leader := s.history.currentLeader()
	if s.rand.IntN(3) > 0 {
		for _, c := range s.contestants {
			if c.name == leader {
				return c
			}
		}
	}
	return s.contestants[s.rand.IntN(len(s.contestants))]
}

// pause sleeps for d between two steps of the schedule.
func (s *faultSchedule) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// randomDuration returns a random duration below d.
func (s *faultSchedule) randomDuration(d time.Duration) time.Duration {
	return time.Duration(s.rand.Int64N(int64(d)))
}

// startFaultSchedule starts contestants on an ensemble of three servers.
func startFaultSchedule(t *testing.T, ens *ensemble.Ensemble, contestants int, seed uint64) *faultSchedule {
	t.Helper()
	s := &faultSchedule{
		t: t, ens: ens, node: "/" + t.Name(), history: newHistory(),
		rand: rand.New(rand.NewPCG(seed, 0)),
	}
	s.admin = connectTo(t, faultsTimeout, ens.Addrs()...)
	register := s.node + "-register"
	for _, path := range []string{s.node, register} {
		_, err := s.admin.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	for i := range contestants {
		s.contestants = append(s.contestants, &contestant{
			name: "candidate " + strconv.Itoa(i), history: s.history,
			conn: connectTo(t, faultsTimeout, ens.Addrs()...),
		})
	}
	// Cleanup functions run in reverse order: the candidacies end before their connections.
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	t.Cleanup(s.calls.Wait)
	for _, c := range s.contestants {
		running.Go(func() { c.runCandidacies(ctx, s.node, register) })
	}
	return s
}

// waitRegained waits until a leader has executed a transaction after the call.
func (s *faultSchedule) waitRegained() error {
	limit := time.Now().Add(regainLimit)
	for {
		_, stat, err := s.admin.Exists("/")
		if err == nil {
			// The zxid of this write is greater than the zxid of every earlier transaction.
			stat, err = s.admin.Set(s.node+"-register", []byte("-1"), -1)
		}
		if err == nil {
			return s.history.waitWriteAfter(stat.Mzxid, time.Until(limit))
		}
		if time.Now().After(limit) {
			return fmt.Errorf("the ensemble does not serve clients: %w", err)
		}
		s.pause(20 * time.Millisecond)
	}
}

// TestRandomFaults_TermsDoNotOverlap checks that the terms of two leaders of one election do not overlap, and that a
// candidate becomes leader after each fault, while servers are killed, paused and cut off, connections break, and
// sessions expire at random.
func TestRandomFaults_TermsDoNotOverlap(t *testing.T) {
	t.Parallel()
	seed := *faultsSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d -faults.duration=%v", seed, *faultsDuration)

	ens := ensemble.StartServers(t, ensemble.Config{Servers: 3, TickTime: faultsTick, SyncLimit: faultsSyncLimit})
	s := startFaultSchedule(t, ens, 5, seed)
	defer func() {
		if t.Failed() {
			t.Logf("history of seed %d:\n%v", seed, s.history)
		}
	}()
	require.NoError(t, s.waitRegained(), "no candidate has led before the first fault")

	var longest time.Duration
	count := 0
	for start := time.Now(); time.Since(start) < *faultsDuration && !t.Failed(); count++ {
		longest = max(longest, s.runRound())
		require.NoError(t, s.history.checkTerms())
	}
	// The leader resigns, so that the leadership changes at least once, whatever faults were chosen.
	for _, c := range s.contestants {
		if c.isLeader() {
			require.NoError(t, c.resignCurrent())
		}
	}
	require.NoError(t, s.waitRegained())
	require.NoError(t, s.history.checkTerms())
	s.history.mu.Lock()
	terms, writes := len(s.history.terms), len(s.history.writes)
	s.history.mu.Unlock()
	t.Logf("%d faults, %d leaderships, %d fenced writes; the longest time without a leader after a fault was %v",
		count, terms, writes, longest.Round(time.Millisecond))
	assert.Greater(t, terms, 1, "the leader has not changed")
}

// runRound injects a fault, and sometimes also a second fault of a client, and repairs the faults. It returns the
// time from the repair until a candidate leads again.
func (s *faultSchedule) runRound() time.Duration {
	t := s.t
	f := faults[s.rand.IntN(len(faults))]
	repairs := []func() error{s.injectFault(f)}
	s.pause(s.randomDuration(faultsTimeout))
	if s.rand.IntN(3) == 0 {
		repairs = append(repairs, s.injectFault(faults[3+s.rand.IntN(len(faults)-3)]))
	}
	s.pause(s.randomDuration(2 * faultsTimeout))
	for _, repair := range repairs {
		require.NoError(t, repair())
	}
	s.history.addRecord("all faults are repaired")
	repaired := time.Now()
	require.NoError(t, s.waitRegained())
	took := time.Since(repaired)
	s.history.addRecord("a candidate leads after %v", took.Round(time.Millisecond))
	ensemble.WaitReady(t, s.ens)
	s.pause(s.randomDuration(faultsTimeout / 2))
	return took
}

func (s *faultSchedule) injectFault(f fault) func() error {
	s.history.addRecord("FAULT %s …", f.name)
	what, repair, err := f.inject(s)
	s.history.addRecord("FAULT %s %s", f.name, what)
	require.NoError(s.t, err)
	return repair
}
