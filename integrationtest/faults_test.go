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
	// faultsBound is how long it may take after the end of a fault until
	// somebody leads: a session's time, an election among the servers, and the
	// client library's way back, which pauses a second after each round.
	faultsBound = 15 * time.Second
)

// contestant stands in the election again and again, over its own connection
// and its own way to each server.
type contestant struct {
	name  string
	conn  *client // with one way to each server
	h     *history
	mu    sync.Mutex
	now   *leaderelection.Election
	terms sync.WaitGroup
}

// run stands until ctx ends. Whatever ends a candidacy, it makes a new one.
func (c *contestant) run(ctx context.Context, node, register string) {
	defer c.terms.Wait()
	for ctx.Err() == nil {
		e, err := leaderelection.NewElection(c.conn.Conn, node,
			leaderelection.WithClientName(c.name), leaderelection.WithRejoin(),
			leaderelection.WithSessionTimeout(faultsTimeout), leaderelection.WithContext(ctx))
		if err != nil {
			c.h.note("%s cannot stand: %v", c.name, err)
			if !errors.Is(err, leaderelection.ErrUnreachable) {
				return // and will not be able to; nobody leads in its place
			}
			continue // it has waited for a session timeout
		}
		c.mu.Lock()
		c.now = e
		c.mu.Unlock()
		ended := make(chan error, 1)
		go func() { ended <- e.ElectLeader() }()
		for s := range e.Status() {
			switch {
			case s.Role == leaderelection.Leader:
				t := c.h.granted(c.name, s.CandidateID, s.Leadership)
				c.terms.Go(func() { c.lead(e, s.Leadership, t, register) })
			default:
				c.h.note("%s %v", c.name, s)
			}
		}
		c.h.note("%s's candidacy is over: %v", c.name, <-ended)
	}
}

// lead carries out fenced writes until the leadership ends.
func (c *contestant) lead(e *leaderelection.Election, l *leaderelection.Leadership, t *term, register string) {
	write := func() error {
		answer, err := e.Multi(&zk.SetDataRequest{Path: register, Data: strconv.AppendInt(nil, l.Token(), 10), Version: -1})
		if err == nil {
			c.h.wrote(c.name, l.Token(), answer[0].Stat.Mzxid)
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
				c.h.note("%s: fenced write: %v", c.name, err)
			}
			select {
			case <-tick.C:
			case <-l.Done():
			}
		}
	}()
	<-l.Done()
	c.h.ended(t, l.Err())
	<-finished
}

// resign ends the candidacy of now.
func (c *contestant) resign() error {
	c.mu.Lock()
	e := c.now
	c.mu.Unlock()
	if e == nil {
		return nil
	}
	return e.Resign()
}

// leads says whether the contestant is a leader in its own eyes.
func (c *contestant) leads() bool { return c.h.leader() == c.name }

// arena is an election under random faults.
type arena struct {
	t     *testing.T
	ens   *ensemble.Ensemble
	node  string
	admin *client // by direct ways, which do not fail by themselves
	all   []*contestant
	h     *history
	rand  *rand.Rand
	calls sync.WaitGroup
}

// fault breaks something and returns what repairs it.
type fault struct {
	name   string
	inject func(*arena) (what string, repair func() error, err error)
}

func serverFault(inject, repair func(*ensemble.Ensemble, int) error) func(*arena) (string, func() error, error) {
	return func(a *arena) (string, func() error, error) {
		i := a.server()
		return fmt.Sprintf("server %d", i), func() error { return repair(a.ens, i) }, inject(a.ens, i)
	}
}

func clientFault(inject, repair func(link)) func(*arena) (string, func() error, error) {
	return func(a *arena) (string, func() error, error) {
		c := a.contestant()
		inject(c.conn.link)
		return c.name, func() error {
			repair(c.conn.link)
			return nil
		}, nil
	}
}

var faults = []fault{
	{"kill", serverFault((*ensemble.Ensemble).Kill, (*ensemble.Ensemble).Start)},
	{"pause", serverFault((*ensemble.Ensemble).Pause, (*ensemble.Ensemble).Resume)},
	{"cut off", serverFault((*ensemble.Ensemble).CutOff, (*ensemble.Ensemble).Heal)},
	{"break connections of", clientFault(link.drop, link.restore)},
	{"refuse connections of", clientFault(link.cut, link.restore)},
	{"black-hole, losing all, the link of", clientFault(link.freeze, link.restore)},
	{"black-hole, delaying all, the link of", clientFault(link.freeze, link.thaw)},
	{"expire session of", expireSession},
	{"resign", resign},
}

// expireSession has the ensemble end a session. A session that ends early,
// while its owner rightly counts on it, is no fault that ZooKeeper knows; so
// the owner is silenced until it can no longer lead.
func expireSession(a *arena) (string, func() error, error) {
	c := a.contestant()
	c.conn.link.freeze()
	limit := time.Now().Add(faultsTimeout)
	for c.leads() {
		if time.Now().After(limit) {
			return c.name, func() error { return nil }, fmt.Errorf("%s leads for %v without a connection", c.name, faultsTimeout)
		}
		a.pause(5 * time.Millisecond)
	}
	if err := c.conn.link.expireSession(c.conn.SessionID()); err != nil {
		a.h.note("the session of %s was not ended: %v", c.name, err) // its server may be down
	}
	return c.name, func() error {
		c.conn.link.restore()
		return nil
	}, nil
}

func resign(a *arena) (string, func() error, error) {
	c := a.contestant()
	a.calls.Go(func() {
		if err := c.resign(); err != nil {
			a.h.note("%s has resigned: %v", c.name, err)
		}
	})
	return c.name, func() error { return nil }, nil
}

// server picks a server: often the one that leads the ensemble.
func (a *arena) server() int {
	if a.rand.IntN(3) == 0 {
		if i, err := a.ens.Leader(); err == nil {
			return i
		}
	}
	return a.rand.IntN(a.ens.Servers())
}

// contestant picks one: often the one that leads.
func (a *arena) contestant() *contestant {
	leader := a.h.leader()
	if a.rand.IntN(3) > 0 {
		for _, c := range a.all {
			if c.name == leader {
				return c
			}
		}
	}
	return a.all[a.rand.IntN(len(a.all))]
}

// pause is a part of the schedule.
func (a *arena) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// upTo is a random duration.
func (a *arena) upTo(d time.Duration) time.Duration {
	return time.Duration(a.rand.Int64N(int64(d)))
}

// newArena starts contestants on an ensemble of three.
func newArena(t *testing.T, ens *ensemble.Ensemble, contestants int, seed uint64) *arena {
	t.Helper()
	a := &arena{
		t: t, ens: ens, node: "/" + t.Name(), h: newHistory(),
		rand: rand.New(rand.NewPCG(seed, 0)),
	}
	a.admin = connectTo(t, faultsTimeout, ens.Addrs()...)
	register := a.node + "-register"
	for _, path := range []string{a.node, register} {
		_, err := a.admin.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	for i := range contestants {
		a.all = append(a.all, &contestant{
			name: "candidate " + strconv.Itoa(i), h: a.h,
			conn: connectTo(t, faultsTimeout, ens.Addrs()...),
		})
	}
	// Cleanups run backwards: the candidates end before their connections.
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	t.Cleanup(a.calls.Wait)
	for _, c := range a.all {
		running.Go(func() { c.run(ctx, a.node, register) })
	}
	return a
}

// regained waits until somebody leads, as the ensemble has confirmed by a
// transaction that is later than all before the call.
func (a *arena) regained() error {
	limit := time.Now().Add(faultsBound)
	for {
		_, stat, err := a.admin.Exists("/")
		if err == nil {
			// Any write will do; its zxid is later than all that came before.
			stat, err = a.admin.Set(a.node+"-register", []byte("-1"), -1)
		}
		if err == nil {
			return a.h.writeAfter(stat.Mzxid, time.Until(limit))
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

	ens := startEnsemble(t, ensemble.Config{Servers: 3, TickTime: faultsTick, SyncLimit: faultsSyncLimit})
	a := newArena(t, ens, 5, seed)
	defer func() {
		if t.Failed() {
			t.Logf("history of seed %d:\n%v", seed, a.h)
		}
	}()
	require.NoError(t, a.regained(), "nobody has led before the first fault")

	var longest time.Duration
	count := 0
	for start := time.Now(); time.Since(start) < *faultsDuration && !t.Failed(); count++ {
		longest = max(longest, a.round())
		require.NoError(t, a.h.check())
	}
	// Whatever chance has chosen, the leadership changes once.
	for _, c := range a.all {
		if c.leads() {
			require.NoError(t, c.resign())
		}
	}
	require.NoError(t, a.regained())
	require.NoError(t, a.h.check())
	a.h.mu.Lock()
	terms, writes := len(a.h.terms), len(a.h.writes)
	a.h.mu.Unlock()
	t.Logf("%d faults, %d leaderships, %d fenced writes; leadership was regained %v after the end of a fault at the latest",
		count, terms, writes, longest.Round(time.Millisecond))
	assert.Greater(t, terms, 1, "the leader has never changed")
}

// round is one fault, sometimes with another one of a client on top, its end,
// and the time until somebody leads again.
func (a *arena) round() time.Duration {
	t := a.t
	f := faults[a.rand.IntN(len(faults))]
	repairs := []func() error{a.inject(f)}
	a.pause(a.upTo(faultsTimeout))
	if a.rand.IntN(3) == 0 {
		repairs = append(repairs, a.inject(faults[3+a.rand.IntN(len(faults)-3)]))
	}
	a.pause(a.upTo(2 * faultsTimeout))
	for _, repair := range repairs {
		require.NoError(t, repair())
	}
	a.h.note("all faults have ended")
	healed := time.Now()
	require.NoError(t, a.regained())
	took := time.Since(healed)
	a.h.note("leadership regained after %v", took.Round(time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, a.ens.Ready(ctx))
	a.pause(a.upTo(faultsTimeout / 2))
	return took
}

func (a *arena) inject(f fault) func() error {
	a.h.note("FAULT %s …", f.name)
	what, repair, err := f.inject(a)
	a.h.note("FAULT %s %s", f.name, what)
	require.NoError(a.t, err)
	return repair
}
