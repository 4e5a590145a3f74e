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
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

var (
	faultsSeed     = flag.Uint64("seed", 0, "seed of the random faults; 0 takes one from the clock")
	faultsDuration = flag.Duration("faults.duration", 40*time.Second, "how long random faults go on")
)

// The relations are those of default settings (tick 2 s, sessions of 4 s, a
// cut-off server that serves reads for 10 s), scaled to half or less: a server
// cut off from its quorum answers its clients for longer than their sessions
// live.
const (
	faultsTick      = 500 * time.Millisecond
	faultsSyncLimit = 6
	faultsTimeout   = 2 * time.Second
	// regainLimit is how long it may take after the end of a fault until
	// somebody leads: a session's time, an election among the servers, and the
	// client library's way back, which pauses a second after each round.
	regainLimit = 15 * time.Second
)

// contestant stands in the election again and again, over its own connection
// and its own way to each server.
type contestant struct {
	name     string
	conn     *client // with one way to each server
	history  *history
	mu       sync.Mutex
	election *leaderelection.Election
	terms    sync.WaitGroup
}

// runCandidacies stands until ctx ends. Whatever ends a candidacy, it makes a new one.
func (c *contestant) runCandidacies(ctx context.Context, node, register string) {
	defer c.terms.Wait()
	for ctx.Err() == nil {
		e, err := leaderelection.NewElection(c.conn.Conn, node,
			leaderelection.WithClientName(c.name), leaderelection.WithRejoin(),
			leaderelection.WithSessionTimeout(faultsTimeout), leaderelection.WithContext(ctx))
		if err != nil {
			c.history.addRecord("%s cannot stand: %v", c.name, err)
			if !errors.Is(err, leaderelection.ErrUnreachable) {
				return // and will not be able to; nobody leads in its place
			}
			continue // it has waited for a session timeout
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
				c.history.addRecord("%s %v", c.name, s)
			}
		}
		c.history.addRecord("%s's candidacy is over: %v", c.name, <-ended)
	}
}

// writeWhileLeader carries out fenced writes until the leadership ends.
func (c *contestant) writeWhileLeader(e *leaderelection.Election, l *leaderelection.Leadership, t *term, register string) {
	write := func() error {
		answer, err := e.Multi(&zk.SetDataRequest{Path: register, Data: strconv.AppendInt(nil, l.Token(), 10), Version: -1})
		if err == nil {
			c.history.addWrite(c.name, l.Token(), answer[0].Stat.Mzxid)
		}
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	finished := make(chan struct{})
	go func() { // a write may take as long as the connection is down
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

// resignCurrent ends the candidacy of now.
func (c *contestant) resignCurrent() error {
	c.mu.Lock()
	e := c.election
	c.mu.Unlock()
	if e == nil {
		return nil
	}
	return e.Resign()
}

// isLeader says whether the contestant is a leader in its own eyes.
func (c *contestant) isLeader() bool { return c.history.currentLeader() == c.name }

// faultSchedule is an election under random faults.
type faultSchedule struct {
	t           *testing.T
	ens         *ensemble.Ensemble
	node        string
	admin       *client // by direct ways, which do not fail by themselves
	contestants []*contestant
	history     *history
	rand        *rand.Rand
	calls       sync.WaitGroup
}

// fault breaks something and returns what repairs it.
type fault struct {
	name   string
	inject func(*faultSchedule) (what string, repair func() error, err error)
}

func serverFault(inject, repair func(*ensemble.Ensemble, int) error) func(*faultSchedule) (string, func() error, error) {
	return func(a *faultSchedule) (string, func() error, error) {
		i := a.chooseServer()
		return fmt.Sprintf("server %d", i), func() error { return repair(a.ens, i) }, inject(a.ens, i)
	}
}

func clientFault(inject, repair func(harness.Network)) func(*faultSchedule) (string, func() error, error) {
	return func(a *faultSchedule) (string, func() error, error) {
		c := a.chooseContestant()
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
	{"break connections of", clientFault(harness.Network.Drop, harness.Network.Restore)},
	{"refuse connections of", clientFault(harness.Network.Cut, harness.Network.Restore)},
	{"black-hole, losing all, the link of", clientFault(harness.Network.Freeze, harness.Network.Restore)},
	{"black-hole, delaying all, the link of", clientFault(harness.Network.Freeze, harness.Network.Thaw)},
	{"expire session of", expireSessionFault},
	{"resign", resignFault},
}

// expireSessionFault has the ensemble end a session. A session that ends early,
// while its owner rightly counts on it, is no fault that ZooKeeper knows; so
// the owner is silenced until it can no longer lead.
func expireSessionFault(a *faultSchedule) (string, func() error, error) {
	c := a.chooseContestant()
	c.conn.Network.Freeze()
	limit := time.Now().Add(faultsTimeout)
	for c.isLeader() {
		if time.Now().After(limit) {
			return c.name, func() error { return nil }, fmt.Errorf("%s leads for %v without a connection", c.name, faultsTimeout)
		}
		a.pause(5 * time.Millisecond)
	}
	if err := c.conn.Network.ExpireSession(c.conn.SessionID()); err != nil {
		a.history.addRecord("the session of %s was not ended: %v", c.name, err) // its server may be down
	}
	return c.name, func() error {
		c.conn.Network.Restore()
		return nil
	}, nil
}

func resignFault(a *faultSchedule) (string, func() error, error) {
	c := a.chooseContestant()
	a.calls.Go(func() {
		if err := c.resignCurrent(); err != nil {
			a.history.addRecord("%s has resigned: %v", c.name, err)
		}
	})
	return c.name, func() error { return nil }, nil
}

// chooseServer picks a server: often the one that leads the ensemble.
func (a *faultSchedule) chooseServer() int {
	if a.rand.IntN(3) == 0 {
		if i, err := a.ens.Leader(); err == nil {
			return i
		}
	}
	return a.rand.IntN(a.ens.Servers())
}

// chooseContestant picks one: often the one that leads.
func (a *faultSchedule) chooseContestant() *contestant {
	leader := a.history.currentLeader()
	if a.rand.IntN(3) > 0 {
		for _, c := range a.contestants {
			if c.name == leader {
				return c
			}
		}
	}
	return a.contestants[a.rand.IntN(len(a.contestants))]
}

// pause is a part of the schedule.
func (a *faultSchedule) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// randomDuration is a random duration.
func (a *faultSchedule) randomDuration(d time.Duration) time.Duration {
	return time.Duration(a.rand.Int64N(int64(d)))
}

// startFaultSchedule starts contestants on an ensemble of three.
func startFaultSchedule(t *testing.T, ens *ensemble.Ensemble, contestants int, seed uint64) *faultSchedule {
	t.Helper()
	a := &faultSchedule{
		t: t, ens: ens, node: "/" + t.Name(), history: newHistory(),
		rand: rand.New(rand.NewPCG(seed, 0)),
	}
	a.admin = connectTo(t, faultsTimeout, ens.Addrs()...)
	register := a.node + "-register"
	for _, path := range []string{a.node, register} {
		_, err := a.admin.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	for i := range contestants {
		a.contestants = append(a.contestants, &contestant{
			name: "candidate " + strconv.Itoa(i), history: a.history,
			conn: connectTo(t, faultsTimeout, ens.Addrs()...),
		})
	}
	// Cleanups run backwards: the candidates end before their connections.
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	t.Cleanup(a.calls.Wait)
	for _, c := range a.contestants {
		running.Go(func() { c.runCandidacies(ctx, a.node, register) })
	}
	return a
}

// waitRegained waits until somebody leads, as the ensemble has confirmed by a
// transaction that is later than all before the call.
func (a *faultSchedule) waitRegained() error {
	limit := time.Now().Add(regainLimit)
	for {
		_, stat, err := a.admin.Exists("/")
		if err == nil {
			// Any write will do; its zxid is later than all that came before.
			stat, err = a.admin.Set(a.node+"-register", []byte("-1"), -1)
		}
		if err == nil {
			return a.history.waitWriteAfter(stat.Mzxid, time.Until(limit))
		}
		if time.Now().After(limit) {
			return fmt.Errorf("the ensemble does not serve: %w", err)
		}
		a.pause(20 * time.Millisecond)
	}
}

// TestFaultsRandom lets candidates stand in one election while servers are
// killed, frozen and cut off, links break and sessions expire, at random.
func TestFaultsRandom(t *testing.T) {
	t.Parallel()
	seed := *faultsSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d -faults.duration=%v", seed, *faultsDuration)

	ens := harness.StartServers(t, ensemble.Config{Servers: 3, TickTime: faultsTick, SyncLimit: faultsSyncLimit})
	a := startFaultSchedule(t, ens, 5, seed)
	defer func() {
		if t.Failed() {
			t.Logf("history of seed %d:\n%v", seed, a.history)
		}
	}()
	require.NoError(t, a.waitRegained(), "nobody has led before the first fault")

	var longest time.Duration
	count := 0
	for start := time.Now(); time.Since(start) < *faultsDuration && !t.Failed(); count++ {
		longest = max(longest, a.runRound())
		require.NoError(t, a.history.checkTerms())
	}
	// Whatever chance has chosen, the leadership changes once.
	for _, c := range a.contestants {
		if c.isLeader() {
			require.NoError(t, c.resignCurrent())
		}
	}
	require.NoError(t, a.waitRegained())
	require.NoError(t, a.history.checkTerms())
	a.history.mu.Lock()
	terms, writes := len(a.history.terms), len(a.history.writes)
	a.history.mu.Unlock()
	t.Logf("%d faults, %d leaderships, %d fenced writes; leadership was regained %v after the end of a fault at the latest",
		count, terms, writes, longest.Round(time.Millisecond))
	assert.Greater(t, terms, 1, "the leader has never changed")
}

// runRound is one fault, sometimes with another one of a client on top, its end,
// and the time until somebody leads again.
func (a *faultSchedule) runRound() time.Duration {
	t := a.t
	f := faults[a.rand.IntN(len(faults))]
	repairs := []func() error{a.injectFault(f)}
	a.pause(a.randomDuration(faultsTimeout))
	if a.rand.IntN(3) == 0 {
		repairs = append(repairs, a.injectFault(faults[3+a.rand.IntN(len(faults)-3)]))
	}
	a.pause(a.randomDuration(2 * faultsTimeout))
	for _, repair := range repairs {
		require.NoError(t, repair())
	}
	a.history.addRecord("all faults have ended")
	healed := time.Now()
	require.NoError(t, a.waitRegained())
	took := time.Since(healed)
	a.history.addRecord("leadership regained after %v", took.Round(time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, a.ens.Ready(ctx))
	a.pause(a.randomDuration(faultsTimeout / 2))
	return took
}

func (a *faultSchedule) injectFault(f fault) func() error {
	a.history.addRecord("FAULT %s …", f.name)
	what, repair, err := f.inject(a)
	a.history.addRecord("FAULT %s %s", f.name, what)
	require.NoError(a.t, err)
	return repair
}
