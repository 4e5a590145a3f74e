package raftlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/transport"
)

// Node is a peer of a cluster in this process. Create it with [Open]. Its methods may be
// called from any goroutine.
type Node struct {
	cfg   Config
	fs    disk.FS
	log   *slog.Logger
	files *filelog.Log
	net   *transport.Transport
	// clients serves the connections of clients.
	clients *rpc.Server
	lock    io.Closer

	owner   identity.Owner // Open's; does not change later
	process string         // the identity of this process
	known   acquaintances

	began time.Time // the origin of the node's clock

	calls    chan func(*core.Core) // for the loop to carry out
	requests chan request
	work     *queue[task]       // for the disk
	stored   chan []stored      // what the disk has done
	apply    *queue[core.Apply] // for the state machine

	current   *looping          // the loop's own
	staged    map[uint64]string // the loop's: received snapshots that are not installed, by index
	removed   chan struct{}     // closed by the loop when this peer takes no part any more
	replacing sync.Mutex        // of whoever puts a snapshot in place of the newest one

	// has is the newest entry that the state machine has, and applied how far it was gone
	// through the log since Open: a state machine that keeps its state can be ahead of that,
	// and of the log, whose last entries others may have stored first.
	has     uint64 // Open's, then the state machine's goroutine's
	applied progress
	lease   atomic.Int64 // until when, by the node's clock
	room    atomic.Int64 // see core.SetRoom, as full
	full    atomic.Bool
	skips   atomic.Pointer[[]uint64]
	status  atomic.Pointer[core.Status]

	mu        sync.Mutex
	elections map[*Election]struct{}
	observers map[*observer]struct{}
	fault     error // set before ended is closed

	ctx   context.Context // until Close or a fault
	stop  context.CancelCauseFunc
	tasks sync.WaitGroup // everything that runs
	ended chan struct{}  // closed when nothing runs any more
}

// Open starts a peer with the data in its directory. It reads the log, restores the state
// machine, listens, and returns when other peers can connect, which is before there is a
// leader. The initial voters, which are listed in Config.Peers, create the cluster if their
// directories are empty. Any other peer with an empty directory first fetches a snapshot
// from the cluster.
//
// Errors: [api.ErrInvalid] if the configuration is invalid or contradicts the data in the
// directory; [api.ErrFault] if a log or a snapshot is damaged; [api.ErrIdentity] if this peer must
// not join the cluster with the data in the directory; errors of the state machine, the
// disk and the network; and [api.ErrRefused], or the last error, if no peer has sent a snapshot
// within JoinTimeout.
func Open(cfg Config) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		if cfg.Listener != nil {
			cfg.Listener.Close()
		}
		return nil, err
	}
	n := &Node{
		cfg: cfg, fs: cfg.fs, log: cfg.Logger.With("cluster", cfg.Cluster, "peer", cfg.ID),
		began: time.Now(), calls: make(chan func(*core.Core)), requests: make(chan request, 1024),
		work: newQueue[task](), stored: make(chan []stored), apply: newQueue[core.Apply](),
		staged: map[uint64]string{}, elections: map[*Election]struct{}{}, observers: map[*observer]struct{}{}, removed: make(chan struct{}), ended: make(chan struct{}),
	}
	if n.fs == nil {
		n.fs = disk.OS(cfg.Dir)
	}
	n.applied.init()
	n.room.Store(math.MaxInt64)
	n.ctx, n.stop = context.WithCancelCause(context.Background())
	if err := n.open(); err != nil {
		n.release()
		return nil, err
	}
	return n, nil
}

func (n *Node) open() error {
	if err := n.claim(); err != nil {
		return err
	}
	snap, err := n.beginning()
	if err != nil {
		return err
	}
	meta, size := snap.Meta(), snap.Size()
	tables, err := replica.Read(snap.Tables())
	if err == nil {
		n.has, err = n.machine().LastApplied()
	}
	if err == nil {
		err = n.restore(snap)
	}
	if err = errors.Join(err, snap.Close()); err != nil {
		return fmt.Errorf("%w: snapshot: %w", api.ErrFault, err)
	}
	if err := n.checkLog(); err != nil {
		return err
	}
	if err := n.openLog(meta); err != nil {
		return err
	}
	if err := n.complete(); err != nil {
		return err
	}
	if err := n.acquaint(); err != nil {
		return err
	}
	c, err := core.New(core.Config{
		Cluster: n.cfg.Cluster, Self: n.cfg.self(), Seeds: n.cfg.Peers,
		Tick: n.cfg.ElectionTimeout / ticksPerTimeout, Heartbeat: n.cfg.Heartbeat, Election: n.cfg.ElectionTimeout,
		Window: n.cfg.Window, MaxIDs: n.cfg.MaxRequestIDs, MaxData: n.cfg.MaxData,
		Clock: clock{n}, Instances: n.instances, Random: rand.Uint64, Logger: n.log,
		Log: n.files, Replica: tables,
		Snapshot: core.Snapshot{Index: meta.Index, Term: meta.Term, Size: size, Members: tables.Members.Index},
	})
	if err != nil {
		return err
	}
	return n.start(c)
}

// clock is the node's: monotonic from its beginning.
type clock struct{ n *Node }

func (c clock) Now() time.Duration { return time.Since(c.n.began) }
func (c clock) Wall() time.Time    { return time.Now().Round(0) }

// openLog opens the log, and has it begin behind the snapshot if it is not of the same
// history: the machine was stopped between the two steps in which a snapshot is installed.
func (n *Node) openLog(meta snapshot.Meta) error {
	files, err := filelog.Open(n.fs, logDir, filelog.Options{SegmentSize: n.cfg.segment})
	if err != nil {
		return fmt.Errorf("%w: %w", api.ErrFault, err)
	}
	n.files = files
	if err := continues(files, meta); !errors.Is(err, errOtherLog) {
		return err
	}
	last, err := files.LastIndex()
	if err != nil {
		return err
	}
	n.log.Info("log restarts after the snapshot", "index", meta.Index, "last", last)
	if err := files.Reset(meta.Index, meta.Term); err != nil {
		return fmt.Errorf("%w: %w", api.ErrFault, err)
	}
	return nil
}

// start has everything run.
func (n *Node) start(c *core.Core) error {
	listener := n.cfg.Listener
	if listener == nil {
		var err error
		if listener, err = net.Listen("tcp", n.cfg.Listen); err != nil {
			return fmt.Errorf("raftlog: listen: %w", err)
		}
	}
	n.clients = rpc.NewServer(service{n})
	n.net = transport.New(transport.Config{
		Self: n.identity(), Listener: listener, Dial: n.cfg.Dial, Log: n.log, OnClient: n.serve, OnSnapshot: n.receive,
		Accepts: n.accepts, OnRefused: n.refused,
	})
	n.publish(c.Status())
	n.publishSkips(c)
	if err := n.net.Run(); err != nil {
		return err
	}
	n.net.SetPeers(c.Peers())
	n.goes(func() { n.loop(c) })
	n.goes(n.write)
	n.goes(n.applyAll)
	if n.cfg.CompactFile != "" {
		n.goes(n.watchCompactFile)
	}
	go func() {
		<-n.ctx.Done()
		n.net.Close()
		n.goes(nil) // whoever was about to begin something has; from here on nothing begins
		n.tasks.Wait()
		n.release()
		close(n.ended)
	}()
	return nil
}

// goes runs f as a part of the node, which Close waits for; false if the node has stopped.
func (n *Node) goes(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() != nil {
		return false
	}
	n.tasks.Add(1)
	go func() {
		defer n.tasks.Done()
		f()
	}()
	return true
}

// release gives back what Open has taken.
func (n *Node) release() {
	n.stop(api.ErrClosed)
	switch {
	case n.net != nil:
		n.net.Close()
	case n.cfg.Listener != nil:
		n.cfg.Listener.Close()
	}
	if n.files != nil {
		if err := n.files.Close(); err != nil {
			n.log.Error("closing the log failed", "err", err)
		}
	}
	if n.lock != nil {
		if err := n.lock.Close(); err != nil {
			n.log.Error("releasing the directory failed", "err", err)
		}
	}
}

// fail stops the node by a fault: it takes no part in anything from now on. The first one
// counts.
func (n *Node) fail(err error) {
	if !errors.Is(err, api.ErrFault) { // ErrIdentity is one
		err = fmt.Errorf("%w: %w", api.ErrFault, err)
	}
	n.mu.Lock()
	first := n.fault == nil && n.ctx.Err() == nil
	if first {
		n.fault = err
	}
	n.mu.Unlock()
	if first {
		n.log.Error("node stopped", "err", err)
	}
	n.lease.Store(0)
	n.stop(err)
}

// Close stops the node: candidates end with [api.ErrClosed], pending calls return, and if this
// peer is the leader of the log, another peer becomes leader immediately. Close blocks
// until all goroutines have ended, and may be called repeatedly. Confirmed updates are on
// disk.
//
// It returns nil, or the fault if the node had stopped because of one.
func (n *Node) Close() error {
	n.handOver()
	n.stop(api.ErrClosed)
	<-n.ended
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fault
}

// Done returns a channel that is closed when the node has stopped, by Close or because of a
// fault. Err returns the reason.
func (n *Node) Done() <-chan struct{} { return n.ended }

// Err returns nil while the node runs, and then [api.ErrClosed] or the fault.
func (n *Node) Err() error {
	if n.ctx.Err() == nil {
		return nil
	}
	return context.Cause(n.ctx)
}

// do has the loop carry f out, and waits for it. It must not wait for anything itself.
func (n *Node) do(ctx context.Context, f func(*core.Core)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	done := make(chan struct{})
	select {
	case n.calls <- func(c *core.Core) { defer close(done); f(c) }:
	case <-n.ctx.Done():
		return context.Cause(n.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	<-done // the loop has it, and carries it out
	return nil
}

// handOverLimit is how long Close waits for another leader.
const handOverLimit = 2 // election timeouts

// handOver has another peer lead the log, if this one does.
func (n *Node) handOver() {
	ctx, cancel := context.WithTimeout(n.ctx, handOverLimit*n.cfg.ElectionTimeout)
	defer cancel()
	poll := time.NewTicker(n.cfg.ElectionTimeout / ticksPerTimeout)
	defer poll.Stop()
	term := uint64(0) // of which the lead is handed over
	for {
		leads := false
		if n.do(ctx, func(c *core.Core) {
			s := c.Status()
			leads = s.Role == core.Leader && len(c.Replica().Members.Voters) > 1
			if term != 0 && s.Term != term {
				leads = false // it has got the lead back, from one that is closed as well
			}
			if leads {
				term = s.Term
				c.HandOver()
			}
		}) != nil || !leads {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}
