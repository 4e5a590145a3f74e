package zktest

import (
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// ensemble is the state of one or more servers. Its lock guards the tree, the sessions, the watches
// and the log. The lock is never held while a hook runs or while a goroutine writes to a connection.
// It is acquired before the lock of a connection.
type ensemble struct {
	cfg     config
	clock   clock
	manual  *manualClock // the clock of WithManualClock, or nil
	started time.Time
	number  int64 // the number of the ensemble in this process, which distinguishes its session IDs
	hooks   hookSet
	wg      sync.WaitGroup // wg counts all goroutines and timers

	mu           sync.Mutex
	closing      bool // reports that Connect returns an error, because closeServers was called
	closed       bool
	tree         *tree
	zxid         int64 // the zxid of the newest transaction
	sessions     map[int64]*session
	nextSession  int64
	expiry       sessionQueue
	stopExpiry   func()
	expiryTimer  int // the number of the timer that startExpiryTimer has started last; earlier timers do nothing
	armedFor     time.Time
	stopSweep    func()
	dataWatches  *watchTable
	childWatches *watchTable
	firings      uint64
	servers      []*Server
	leader       int
	quorum       bool
	views        []*view
	log          requestLog
	body         wire.Encoder // a buffer for the body of a reply
	replyBuf     []byte
	eventBuf     []byte
	connSeq      int
	clients      []weak.Pointer[zk.Conn] // the clients of Connect, which closeServers closes
	delays       map[*time.Timer]struct{}
	timeLimit    *time.Timer // the limit of fake time, or nil
}

// ensembles counts the ensembles that this process has started.
var ensembles atomic.Int64

func newEnsemble(n int, opts []Option) (*ensemble, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	e := &ensemble{
		cfg: cfg, clock: runtimeClock{}, sessions: make(map[int64]*session),
		dataWatches: newWatchTable(), childWatches: newWatchTable(), quorum: true,
		log: requestLog{limit: cfg.logLimit}, delays: make(map[*time.Timer]struct{}),
	}
	e.started, e.number = time.Now(), ensembles.Add(1)
	if cfg.manual {
		e.manual = &manualClock{t: e.started}
		e.clock = e.manual
	}
	for i := range n {
		e.servers = append(e.servers, &Server{e: e, id: i, conns: make(map[*conn]struct{})})
	}
	// Of servers with equal state, a real ensemble elects the server with the greatest number.
	e.leader = n - 1
	if n > 1 {
		e.zxid = 1 << 32
	}
	e.tree = e.emptyTree()
	e.limitFakeTime(cfg.timeLimit)
	return e, nil
}

// emptyTree returns the tree of a new ensemble.
func (e *ensemble) emptyTree() *tree {
	t := newTree()
	t.zxid = e.zxid
	if len(e.servers) > 1 {
		t.nodes[pathConfig].data = e.configData()
	}
	return t
}

func (e *ensemble) nowLocked() time.Time { return e.clock.now() }

// startTimer arranges that f is called after d in the time of the server's clock. The caller holds
// e.mu.
func (e *ensemble) startTimer(d time.Duration, f func()) (stop func()) {
	e.wg.Add(1)
	cancel := e.clock.startTimer(max(d, 0), func() {
		defer e.wg.Done()
		f()
	})
	return func() {
		if cancel() {
			e.wg.Done()
		}
	}
}

// delayCall arranges that f is called after d by package time, whatever the server's clock is:
// clients measure the delays of a network with their own clocks.
func (e *ensemble) delayCall(d time.Duration, f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.wg.Add(1)
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		defer e.wg.Done()
		e.mu.Lock()
		delete(e.delays, t)
		e.mu.Unlock()
		f()
	})
	e.delays[t] = struct{}{}
}

// goLocked calls f in a new goroutine, for whose end Close waits. The caller holds e.mu.
func (e *ensemble) goLocked(f func()) {
	if e.closed {
		return
	}
	e.wg.Go(f)
}

// closeServers stops all servers and waits for their goroutines. It closes the clients of Connect
// first, while the servers still run.
func (e *ensemble) closeServers() {
	e.hooks.removeAll()
	e.healServers()
	e.mu.Lock()
	e.closing = true
	clients := e.clients
	e.clients = nil
	e.mu.Unlock()
	var wg sync.WaitGroup
	if len(clients) > 0 {
		for _, s := range e.servers {
			s.Refuse(true)
			s.DropConnections()
		}
	}
	for _, w := range clients {
		if c := w.Value(); c != nil {
			wg.Go(func() {
				waitDisconnected(c)
				c.Close()
			})
		}
	}
	wg.Wait()
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		e.wg.Wait()
		return
	}
	e.closed = true
	if e.timeLimit != nil {
		e.timeLimit.Stop()
	}
	if e.stopExpiry != nil {
		e.stopExpiry()
	}
	if e.stopSweep != nil {
		e.stopSweep()
	}
	for t := range e.delays {
		if t.Stop() {
			e.wg.Done()
		}
	}
	for _, s := range e.servers {
		if s.stopSync != nil {
			s.stopSync()
		}
		s.stopLagTimer()
		for c := range s.conns {
			c.abort()
		}
	}
	e.mu.Unlock()
	for _, s := range e.servers {
		s.stopListening()
	}
	e.wg.Wait()
}

// waitDisconnected waits until c has detected that its connection was closed. If go-zookeeper v1.0.4
// is closed while it is connected and a request is in flight, it can hang forever: one of its
// goroutines answers the request more than once, and no goroutine receives the second answer.
func waitDisconnected(c *zk.Conn) {
	for tries := 0; c.State() == zk.StateHasSession && tries < 100; tries++ {
		time.Sleep(time.Millisecond)
	}
}
