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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
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
	// clients serves the connections of clients, and joining those of peers that fetch a snapshot.
	// Their limits are separate, so that clients cannot prevent a peer from joining.
	clients, joining *rpc.Server
	lock             io.Closer

	owner   identity.Owner // the peer and the cluster to which the directory belongs
	process string         // the random identity of this process, which tells it from other processes of the same peer
	joined  bool           // Open has joined the cluster: it has fetched the first snapshot of this peer from another peer
	known   knownPeers

	startedAt time.Time // the time at which the clock of the node, nodeClock, was 0

	calls     chan func(*core.Core) // functions that the loop calls, from callLoop
	requests  chan *loopRequest
	idle      sync.Pool           // *loopRequests that can be used again
	writes    *mailbox[writeTask] // the writes that runWriter must make
	apply     *mailbox[applyTask] // the entries and snapshots that runApplier must apply
	completed *completions        // the results of runWriter and runApplier that the loop has not processed yet

	loop       *loopState                // the state of the loop; used by its goroutine only
	staged     map[uint64]string         // the files of received snapshots that are not installed yet, by index; used by the loop only
	receiving  atomic.Pointer[receiving] // the snapshot that is being received, or nil; cleared by the goroutine that receives it
	sending    sending                   // the snapshots that are being sent; used by the loop only
	removed    chan struct{}             // closed by the loop when this peer was removed from the cluster
	snapshotMu sync.Mutex                // held while the newest snapshot is replaced

	// machineIndex is the index of the last entry that the state machine includes. It is used by Open and
	// then by the applier only. applied is the index up to which the log was applied since Open. After a
	// restart with a durable state machine, machineIndex can be greater than applied, and even greater than
	// the last index of this peer's log, because the last entries may have been committed before this peer
	// had stored them.
	machineIndex uint64
	applied      watchedIndex
	lease        atomic.Pointer[time.Time] // the time at which the lease of this peer expires; nil without a lease
	freeSpace    atomic.Int64              // the bytes of updates that still fit on the disk; math.MaxInt64 if no limit is known
	full         atomic.Bool               // entries wait to be written, because the disk has no space
	skips        atomic.Pointer[[]uint64]  // the indexes of the entries that are not applied, such as duplicates, in order
	statusMu     sync.Mutex
	status       core.Status // the status that the loop has published last; guarded by statusMu
	memberStatus atomic.Pointer[memberStatus]

	mu        sync.Mutex
	elections map[*Election]struct{}
	observers map[*observer]struct{}
	fault     error // the fault that has stopped the node, or nil; set before ended is closed

	ctx   context.Context // done after Close or a fault
	stop  context.CancelCauseFunc
	tasks sync.WaitGroup // counts the goroutines of the node that must end before Close returns
	ended chan struct{}  // closed when all goroutines have ended
}

// Open starts a peer with the data in its directory. It listens, reads the log, restores the
// state machine, and returns when other peers can connect, which is before there is a
// leader. The initial voters, which are listed in Config.Peers, create the cluster if their
// directories are empty. Any other peer with an empty directory first fetches a snapshot
// from the cluster.
//
// Errors: [api.ErrInvalid] if the configuration is invalid or contradicts the data in the directory;
// [api.ErrInUse] if another process uses the directory; [api.ErrNoSpace] if the disk is full; [api.ErrFault]
// if a log or a snapshot is damaged; [api.ErrIdentity] if this peer must not join the cluster with the data
// in the directory; errors of the state machine, the disk and the network; and [api.ErrRefused], or the last
// error, if no peer has sent a snapshot within JoinTimeout.
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
		startedAt: time.Now(), calls: make(chan func(*core.Core)), requests: make(chan *loopRequest, 1024),
		writes: newMailbox[writeTask](), apply: newMailbox[applyTask](), completed: newCompletions(),
		staged: map[uint64]string{}, sending: sending{}, elections: map[*Election]struct{}{}, observers: map[*observer]struct{}{}, removed: make(chan struct{}), ended: make(chan struct{}),
		known: knownPeers{reported: transport.Reporters{}},
	}
	if n.fs == nil {
		n.fs = disk.OS(cfg.Dir)
	}
	n.memberStatus.Store(&memberStatus{})
	n.freeSpace.Store(math.MaxInt64)
	n.ctx, n.stop = context.WithCancelCause(context.Background())
	if err := n.openFiles(); err != nil {
		n.releaseResources()
		if disk.IsFull(err) && !errors.Is(err, api.ErrNoSpace) {
			err = fmt.Errorf("%w: %w", api.ErrNoSpace, err)
		}
		return nil, n.withRemedy(err)
	}
	return n, nil
}

func (n *Node) openFiles() error {
	if err := n.claimDirectory(); err != nil {
		return err
	}
	// A peer that cannot listen must not found a cluster: its address may be wrong.
	if err := n.listen(); err != nil {
		return err
	}
	snap, err := n.initialSnapshot()
	if err != nil {
		return err
	}
	meta, size := snap.Meta(), snap.Size()
	state, err := replica.Read(snap.Tables())
	if err == nil {
		n.machineIndex, err = n.stateMachine().LastApplied()
	}
	if err == nil {
		err = n.restoreStateMachine(snap)
	}
	if err = errors.Join(err, snap.Close()); err != nil {
		return fmt.Errorf("%w: snapshot: %w", api.ErrFault, err)
	}
	// The directory is new, but according to the snapshot of the cluster this peer is a voter. It may have
	// voted with a directory that was lost.
	if n.joined && state.Members.IsVoter(replica.RaftID(n.cfg.Cluster, n.cfg.ID)) {
		return identityErrorf("peer %s is a voter of the cluster, and its directory %s is empty%s", n.cfg.ID, n.cfg.Dir, remedies[link.ReasonInstance])
	}
	// The window of a cluster is never shortened, so the cluster ignores a shorter window in the configuration
	// of this peer. Log this once, at the start.
	if n.cfg.Window < state.Window {
		n.log.Warn("the window of this peer is ignored, because the window of the cluster is longer: configure the same window at all peers",
			"window", n.cfg.Window, "cluster-window", state.Window)
	}
	if err := n.checkLog(); err != nil {
		return err
	}
	if err := n.openLog(meta); err != nil {
		return err
	}
	if err := n.markDirectoryComplete(); err != nil {
		return err
	}
	if err := n.readKnownPeers(); err != nil {
		return err
	}
	c, err := core.New(core.Config{
		Cluster: n.cfg.Cluster, Self: n.cfg.ownPeer(), Seeds: n.cfg.Peers,
		Tick: n.cfg.ElectionTimeout / ticksPerTimeout, Heartbeat: n.cfg.Heartbeat, Election: n.cfg.ElectionTimeout,
		Window: n.cfg.Window, MaxIDs: n.cfg.MaxRequestIDs, MaxData: n.cfg.MaxData,
		Clock: nodeClock{n}, Instances: n.knownInstances, Random: rand.Uint64, Logger: n.log,
		Log: n.files, Replica: state,
		Snapshot: core.Snapshot{Index: meta.Index, Term: meta.Term, Size: size, Members: state.Members.Index},
	})
	if err != nil {
		return err
	}
	return n.startGoroutines(c)
}

// nodeClock is the clock of a node, which starts at 0.
type nodeClock struct{ n *Node }

func (c nodeClock) Now() time.Duration { return time.Since(c.n.startedAt) }
func (c nodeClock) Wall() time.Time    { return time.Now().Round(0) }

// openLog opens the log. If the log does not continue after the snapshot, openLog resets the log to start
// there. This is the case in a new directory, and if the process was stopped after it had installed the
// snapshot and before it had reset the log.
func (n *Node) openLog(meta snapshot.Meta) error {
	files, err := filelog.Open(n.fs, logDir, filelog.Options{SegmentSize: n.cfg.segment})
	if err != nil {
		return fmt.Errorf("%w: %w", api.ErrFault, err)
	}
	n.files = files
	if err := checkContinues(files, meta); !errors.Is(err, errOtherLog) {
		return err
	}
	last, err := files.LastIndex()
	if err != nil {
		return err
	}
	if meta.Index == 1 {
		n.log.Info("new log: this peer has founded the cluster with the other initial voters", "founders", n.owner.Founders)
	} else {
		n.log.Info("log restarts after the snapshot", "index", meta.Index, "last", last)
	}
	if err := files.Reset(meta.Index, meta.Term); err != nil {
		return fmt.Errorf("%w: %w", api.ErrFault, err)
	}
	return nil
}

// listen creates the transport, which listens at the address of the peer. Until startGoroutines is called,
// the transport closes each connection that it accepts.
func (n *Node) listen() error {
	listener := n.cfg.Listener
	if listener == nil {
		var err error
		if listener, err = net.Listen("tcp", n.cfg.Listen); err != nil {
			return fmt.Errorf("raftlog: listen: %w", err)
		}
	}
	n.clients, n.joining = rpc.NewServer(service{n}), rpc.NewServer(service{n})
	self := n.cfg.linkIdentity()
	self.AddrsOf = n.addrsOf
	n.net = transport.New(transport.Config{
		Self: self, Listener: listener, Dial: n.cfg.Dial, Log: n.log, OnClient: n.serveClient, OnSnapshot: n.receiveSnapshot,
		Accepts: n.acceptHandshake, OnRefused: n.handleRefusal,
	})
	n.net.Listen()
	return nil
}

// startGoroutines starts the transport, the loop, the writer and the applier of the node.
func (n *Node) startGoroutines(c *core.Core) error {
	n.publishStatus(c.Status())
	n.publishMemberStatus(c)
	n.publishSkips(c)
	n.net.SetClaim(n.owner.Claim(n.process))
	if err := n.net.Run(); err != nil {
		return err
	}
	n.net.SetPeers(c.Peers())
	n.startGoroutine(func() { n.runLoop(c) })
	n.startGoroutine(n.runWriter)
	n.startGoroutine(n.runApplier)
	if n.cfg.CompactFile != "" {
		n.startGoroutine(n.watchCompactFile)
	}
	go func() {
		<-n.ctx.Done()
		n.net.Close()
		n.startGoroutine(nil) // start nothing, but wait for concurrent calls that may still add a goroutine to n.tasks
		n.tasks.Wait()
		n.releaseResources()
		close(n.ended)
	}()
	return nil
}

// startGoroutine runs f in a goroutine that Close waits for. It returns false if the node has stopped.
func (n *Node) startGoroutine(f func()) bool {
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

// errNodeClosed is the error of calls after the node was closed.
var errNodeClosed = fmt.Errorf("node: %w", api.ErrClosed)

// releaseResources closes the connections, the log and the lock of the directory that Open has opened.
func (n *Node) releaseResources() {
	n.stop(errNodeClosed)
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

// stopWithFault stops the node because of a fault, unless the node has stopped before.
func (n *Node) stopWithFault(err error) {
	if !errors.Is(err, api.ErrFault) { // api.ErrIdentity wraps api.ErrFault
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
	n.lease.Store(nil)
	n.stop(err)
}

// Close stops the node: candidates end with [api.ErrClosed], pending calls return, and if this
// peer is the leader of the log, another peer becomes leader immediately. Close blocks
// until all goroutines have ended, and may be called repeatedly. Confirmed updates are on
// disk.
//
// It returns nil, or the fault if the node had stopped because of one.
func (n *Node) Close() error {
	n.handOverLog()
	n.stop(errNodeClosed)
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

// Connection describes the connection to another peer.
type Connection struct {
	// ID is the ID of the peer.
	ID string
	// Connected reports whether there is a connection, which one of the two peers has made.
	Connected bool
	// Err is the error of the last attempt of this peer to connect, or nil. It wraps [api.ErrRefused]
	// if one of the two peers refuses the other, and [api.ErrUnproven] as well if the process at the
	// address has not authenticated itself as a peer.
	Err error
	// Misconfigured is set if Err is the refusal of a process that has authenticated itself as a
	// peer, and the reason is the configuration of one of the two peers: the name of the cluster,
	// an ID or address, or that this peer has the secret of clients.
	Misconfigured bool
}

// Connections returns the connections to the other members of the cluster and the other peers in
// Config.Peers, in the order of their IDs.
func (n *Node) Connections() (all []Connection) {
	for _, c := range n.net.Connections() {
		refused := (*link.RefusedError)(nil)
		misconfigured := errors.As(c.Err, &refused) && refused.Proven && slices.Contains([]link.Reason{link.ReasonCluster, link.ReasonID, link.ReasonSameID, link.ReasonClientSecret}, refused.Reason)
		all = append(all, Connection{ID: c.ID, Connected: c.Connected, Err: c.Err, Misconfigured: misconfigured})
	}
	return all
}

// callLoop makes the loop call f, and waits until f has returned. f must not block.
func (n *Node) callLoop(ctx context.Context, f func(*core.Core)) error {
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
	<-done // the loop has received f, so it will call f
	return nil
}

// handOverTimeouts is the number of election timeouts for which Close waits until another peer leads the log.
const handOverTimeouts = 2

// handOverLog transfers leadership of the log to another peer. It returns as soon as this peer is not the
// leader any more or has no other voter, or after handOverTimeouts election timeouts.
func (n *Node) handOverLog() {
	ctx, cancel := context.WithTimeout(n.ctx, handOverTimeouts*n.cfg.ElectionTimeout)
	defer cancel()
	poll := time.NewTicker(n.cfg.ElectionTimeout / ticksPerTimeout)
	defer poll.Stop()
	term := uint64(0) // the term whose leadership is handed over
	for {
		isLeader := false
		if n.callLoop(ctx, func(c *core.Core) {
			s := c.Status()
			isLeader = s.Role == core.Leader && len(c.Replica().Members.Voters) > 1
			if term != 0 && s.Term != term {
				isLeader = false // do not hand over again: the successor is being closed as well, and has handed over to this peer
			}
			if isLeader {
				term = s.Term
				c.HandOver()
			}
		}) != nil || !isLeader {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}
