package zktest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// ensemble is the state that one or more servers share. One lock guards the tree,
// the sessions, the watches and the log; it is never held while a hook runs or
// while anything is written to a connection. A connection's own lock comes after it.
type ensemble struct {
	cfg     config
	clock   clock
	manual  *manualClock // clock, if it is turned by hand
	started time.Time
	number  int64 // of the ensemble in this process
	hooks   hookSet
	wg      sync.WaitGroup // every goroutine and every timer

	mu           sync.Mutex
	closing      bool // no clients any more
	closed       bool
	tree         *tree
	zxid         int64 // the last one given out
	sessions     map[int64]*session
	nextSession  int64
	expiry       sessionQueue
	stopExpiry   func()
	expiryTimer  int // number of the timer that counts
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
	body         wire.Encoder // scratch space
	replyBuf     []byte
	eventBuf     []byte
	connSeq      int
	clients      []*zk.Conn // made by Connect, closed by Close
	delays       map[*time.Timer]struct{}
	timeLimit    *time.Timer // of fake time; nil for none
}

// ensembles counts those of this process.
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
	e.leader = n - 1 // the real one elects the largest number among equals
	if n > 1 {
		e.zxid = 1 << 32
	}
	e.tree = e.emptyTree()
	e.limitFakeTime(cfg.timeLimit)
	return e, nil
}

// emptyTree returns the tree that the servers begin with.
func (e *ensemble) emptyTree() *tree {
	t := newTree()
	t.zxid = e.zxid
	if len(e.servers) > 1 {
		t.nodes[pathConfig].data = e.configData()
	}
	return t
}

func (e *ensemble) nowLocked() time.Time { return e.clock.now() }

// timer runs f when d of the server's time has passed. The caller holds e.mu.
func (e *ensemble) timer(d time.Duration, f func()) (stop func()) {
	e.wg.Add(1)
	cancel := e.clock.after(max(d, 0), func() {
		defer e.wg.Done()
		f()
	})
	return func() {
		if cancel() {
			e.wg.Done()
		}
	}
}

// later runs f when d of real time has passed: delays are the network's, and
// clients measure them with their own clocks.
func (e *ensemble) later(d time.Duration, f func()) {
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

// goLocked starts a goroutine that Close waits for. The caller holds e.mu.
func (e *ensemble) goLocked(f func()) {
	if e.closed {
		return
	}
	e.wg.Go(f)
}

// close ends everything and waits for it. Connections made by Connect are closed
// first, while there is still a server to tell.
func (e *ensemble) close() {
	e.hooks.clear()
	e.healAll()
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
	for _, c := range clients {
		wg.Go(func() {
			disconnected(c)
			c.Close()
		})
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
		s.stopLagging()
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

// disconnected waits until c has noticed that its connection was dropped. Closed with
// one, go-zookeeper v1.0.4 hangs for ever where a request is under way: its goroutine
// answers it more often than anybody listens.
func disconnected(c *zk.Conn) {
	for tries := 0; c.State() == zk.StateHasSession && tries < 100; tries++ {
		time.Sleep(time.Millisecond)
	}
}
