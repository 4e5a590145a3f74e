package raftlog

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/transport"
)

// loopRequest is a request with the channel for its reply. The loop sends one reply, and does not use
// the request after that, so that the caller can use it again.
type loopRequest struct {
	core.Request
	reply chan core.Reply // receives the reply; has capacity 1, so that the loop does not wait
	ctx   context.Context // the context of the caller; the loop does not start a request whose context is done
}

// runLoop is the loop of the node, the only goroutine that uses the core. It receives frames, requests and
// calls over channels, and passes the output of the core to queues and connections that do not block.
func (n *Node) runLoop(c *core.Core) {
	l := &loopState{n: n, c: c, waiting: map[uint64]chan core.Reply{}, dropped: transport.Reporters{}}
	n.loop = l
	defer n.lease.Store(nil) // ends all leaderships at this node when the loop ends
	defer func() {
		if r := recover(); r != nil {
			fault, ok := r.(core.Fault)
			if !ok {
				panic(r)
			}
			n.stopWithFault(fault.Err)
		}
		l.failWaiting(context.Cause(n.ctx))
	}()
	tick := time.NewTimer(c.UntilTick())
	defer tick.Stop()
	notice := time.NewTimer(c.UntilNotice())
	defer notice.Stop()
	noticeSet := false // the timer notice is running, to send a delayed message of the core
	frames, unreachable := n.net.Received(), n.net.Unreachable()
	l.now = time.Now()
	c.Advance()
	l.handleOutput()
	for {
		n.completed.wakeOn(c.AwaitsStored(), c.AwaitsApplied())
		l.now = time.Now()
		select {
		case <-n.ctx.Done():
			return
		case <-tick.C:
			n.completed.report(c)
			c.SetFreeSpace(n.freeSpace.Load(), n.full.Load())
			c.Advance()
			tick.Reset(c.UntilTick())
		case <-notice.C:
			noticeSet = false
		case f, ok := <-frames:
			if !ok {
				return
			}
			n.completed.report(c) // results of the writer and the applier first, because the frame may refer to them
			l.receiveFrame(f.From.ID, f.Data)
		case r := <-n.requests:
			l.acceptRequest(r)
		case f := <-n.calls:
			f(c)
		case <-n.completed.added:
			n.completed.report(c)
		case id := <-unreachable:
			c.ReportUnreachable(id)
		}
		l.handleInputs()
		if n.ctx.Err() != nil { // the node must send nothing after a fault
			return
		}
		l.handleOutput()
		// The timer wakes the loop to send a delayed message of the core (core.UntilNotice). It is not
		// stopped when another message has replaced the delayed one, which is frequent; the loop then wakes
		// once without need.
		if d := c.UntilNotice(); !noticeSet && d < time.Hour {
			notice.Reset(d)
			noticeSet = true
		}
	}
}

// maxInputs is the maximum number of frames, requests and calls that the loop passes to the core before it
// handles the output.
const maxInputs = 1024

// handleInputs handles the frames, requests and calls that have arrived, so that they share one write
// to the log and one round of messages. If several callers wait for replies, other goroutines are
// about to make requests, and handleInputs lets them run once: with 16 clients this halves the number
// of writes, and allows a third more updates.
func (l *loopState) handleInputs() {
	frames := l.n.net.Received()
	yielded := len(l.waiting) < 2
	for range maxInputs {
		l.n.completed.report(l.c)
		select {
		case f, ok := <-frames:
			if ok {
				l.receiveFrame(f.From.ID, f.Data)
			}
			continue
		case r := <-l.n.requests:
			l.acceptRequest(r)
			continue
		case f := <-l.n.calls:
			f(l.c)
			continue
		default:
		}
		if yielded {
			return
		}
		yielded = true
		runtime.Gosched()
	}
}

// loopState is the state of the loop. Only the goroutine of the loop uses it.
type loopState struct {
	n        *Node
	c        *core.Core
	now      time.Time                  // the time at which the loop began to wait in this iteration
	lease    time.Duration              // when the published lease ends, on the clock of the node
	token    uint64                     // the token of the newest request
	waiting  map[uint64]chan core.Reply // the channels on which the callers wait for replies, by token
	hadLease bool                       // the node had a lease at the last call of signalCandidates
	leaseEnd time.Duration              // when the lease ended as of that call, on the clock of the node
	dropped  transport.Reporters        // limits how often errors of frames are logged, by the text of the error
	removed  bool                       // this peer knows that it was removed from the cluster

	compactions []*compactionWaiter
}

// receiveFrame passes a frame to the core. If the core drops the frame, receiveFrame logs the error, but the
// same error at most once a minute.
func (l *loopState) receiveFrame(from string, frame []byte) {
	l.c.SetFreeSpace(l.n.freeSpace.Load(), l.n.full.Load())
	if err := l.c.Receive(from, frame); err != nil {
		if l.dropped.ShouldReport(err.Error(), err) {
			l.n.log.Warn("frame dropped", "remote", from, "err", err)
		}
	}
}

// acceptRequest passes a request to the core, unless the context of its caller is done.
func (l *loopState) acceptRequest(r *loopRequest) {
	if r.ctx != nil && r.ctx.Err() != nil {
		r.reply <- core.Reply{Err: fmt.Errorf("%w: nothing was applied: %w", api.ErrBusy, context.Cause(r.ctx))}
		return
	}
	l.c.SetFreeSpace(l.n.freeSpace.Load(), l.n.full.Load())
	if r.reply != nil {
		r.Token = l.addWaiting(r.reply)
	}
	l.c.Propose(r.Request)
}

// addWaiting returns a new token for a request. The loop sends the reply to this request to the channel.
func (l *loopState) addWaiting(reply chan core.Reply) (token uint64) {
	l.token++
	l.waiting[l.token] = reply
	return l.token
}

// abandonChange tries to withdraw the request for a change of the voters whose reply is sent to the channel
// reply, because its caller does not wait any longer. It reports whether a reply with a certain outcome is in
// the channel, or will be without delay.
func (l *loopState) abandonChange(reply chan core.Reply) bool {
	for token, r := range l.waiting {
		if r == reply {
			return l.c.AbandonChange(token)
		}
	}
	return true // the channel contains the reply, or acceptRequest will reject the request, because its context is done
}

// handleOutput passes the output of the core to the writer, the applier, the callers and the connections.
func (l *loopState) handleOutput() {
	n := l.n
	out := l.c.TakeOutput()
	if out.LostLog != nil {
		n.stopWithFault(out.LostLog)
		return
	}
	if len(out.Instances) > 0 {
		n.startGoroutine(func() { n.learnInstances(out.Instances) })
	}
	status := l.c.Status()
	if status.Lease < l.lease {
		// Shorten the lease before a frame is sent that ends it, such as a vote for another leader.
		l.publishLease(status.Lease)
	}
	for _, f := range out.Frames {
		n.net.Send(f.To, f.Urgent, f.Data)
	}
	wake := false
	for _, w := range out.Writes {
		t := writeTask{write: w}
		if w.Snapshot != nil {
			index := w.Snapshot.GetMetadata().GetIndex()
			t.staged = n.staged[index]
			delete(n.staged, index)
		}
		n.writes.addSilently(t)
		wake = wake || !w.CanWait()
	}
	if wake {
		signal(n.writes.added) // signal only after all writes were added, so that they share one sync
	}
	if out.AllElections || len(out.Apply) > 0 {
		n.publishSkips(l.c)
	}
	for _, a := range out.Apply {
		t := applyTask{Apply: a}
		for _, r := range a.Replies {
			if reply, found := l.waiting[r.Token]; found {
				delete(l.waiting, r.Token)
				t.replies = append(t.replies, pendingReply{reply, r})
			}
		}
		n.apply.add(t)
	}
	for _, r := range out.Replies {
		if reply, found := l.waiting[r.Token]; found {
			delete(l.waiting, r.Token)
			reply <- r
		}
	}
	for _, s := range out.Snapshots {
		n.sendSnapshot(s)
	}
	if out.PeersChanged {
		n.net.SetPeers(l.c.Peers())
	}
	l.publishElections(out)
	n.publishStatus(status)
	if out.PeersChanged || !n.memberStatus.Load().established {
		n.publishMemberStatus(l.c)
	}
	if out.PeersChanged {
		n.startGoroutine(n.net.CheckPeers) // record the identities of processes that were connected before they became members
	}
	l.publishLease(status.Lease)
	if status.Role == core.Removed && !l.removed {
		l.removed = true
		close(n.removed)
	}
	if len(l.compactions) > 0 {
		l.completeCompactions()
	}
	l.signalCandidates(out, status.Lease)
}

// publishElections publishes changed queues to candidates and observers. The loop must call it before it
// publishes the lease, because the leader of the log may have granted the lease for the changed queues.
func (l *loopState) publishElections(out core.Output) {
	if !out.AllElections && len(out.Elections) == 0 {
		return
	}
	elections := &l.c.Replica().Elections
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	for e := range l.n.elections {
		if slices.Contains(out.Ended, e.ID()) {
			e.ended.Store(true) // end the candidacy even if the election was restarted in the meantime
		}
		if out.AllElections || slices.Contains(out.Elections, e.name) {
			e.publishQueue(elections.Get(e.name))
		}
	}
	for o := range l.n.observers {
		if out.AllElections || slices.Contains(out.Elections, o.name) {
			o.setQueue(elections.Get(o.name))
		}
	}
}

// signalCandidates signals the candidates whose queue or lease has changed.
func (l *loopState) signalCandidates(out core.Output, leaseEnd time.Duration) {
	n := l.n
	now := nodeClock{n}.Now()
	hasLease := leaseEnd > now
	// Signal the candidates also if the previous lease had expired before it was renewed: leaderships that
	// have ended with it must start again, even if no candidate has noticed the expiry.
	all := out.AllElections || hasLease != l.hadLease || hasLease && l.leaseEnd <= now
	l.hadLease, l.leaseEnd = hasLease, leaseEnd
	if !all && len(out.Elections) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for e := range n.elections {
		if all || slices.Contains(out.Elections, e.name) {
			signal(e.changed)
		}
	}
}

// publishStatus publishes the status to other goroutines.
func (n *Node) publishStatus(status core.Status) {
	n.statusMu.Lock()
	defer n.statusMu.Unlock()
	n.status = status
}

// publishLease publishes the time at which the lease expires. A time.Time contains a reading of the monotonic
// clock and one of the wall clock. Candidates compare both with the current time, to detect that the machine
// was suspended. Both readings must be those of the time at which the lease was granted, because the wall
// clock may have been set since Open, and the machine may have been suspended.
func (l *loopState) publishLease(until time.Duration) {
	if until == l.lease {
		return
	}
	l.lease = until
	if until == 0 {
		l.n.lease.Store(nil)
		return
	}
	end := l.now.Add(until - l.now.Sub(l.n.startedAt))
	l.n.lease.Store(&end)
}

// memberStatus contains the members of the cluster according to the log, and the results of core.Established:
// whether this peer is established, that is, a voter whose log has entries after the first one, and the IDs
// of the voters.
type memberStatus struct {
	members     []api.Peer
	established bool
	voters      []string
}

// publishMemberStatus publishes the members, and whether this peer is established, to other goroutines.
func (n *Node) publishMemberStatus(c *core.Core) {
	var s memberStatus
	s.established, s.voters = c.Established()
	for _, p := range c.Replica().Members.All() {
		s.members = append(s.members, api.Peer{ID: p.ID, Addr: p.Addr})
	}
	n.memberStatus.Store(&s)
}

// addrsOf returns the addresses of a peer according to the log and the configuration.
func (n *Node) addrsOf(id string) (addrs []string) {
	for _, p := range slices.Concat(n.memberStatus.Load().members, n.cfg.Peers) {
		if p.ID == id && !slices.Contains(addrs, p.Addr) {
			addrs = append(addrs, p.Addr)
		}
	}
	return addrs
}

// isMember reports whether a peer is a member of the cluster according to the log.
func (n *Node) isMember(id string) bool {
	return slices.ContainsFunc(n.memberStatus.Load().members, func(p api.Peer) bool { return p.ID == id })
}

// publishSkips publishes the indexes of the entries that the log skips, such as duplicates, to other
// goroutines, if these indexes have changed.
func (n *Node) publishSkips(c *core.Core) {
	skips := c.Replica().Skips
	if published := n.skips.Load(); published == nil || len(*published) != len(skips) || len(skips) > 0 && &(*published)[0] != &skips[0] {
		n.skips.Store(&skips)
	}
}

// failWaiting replies with an error to all callers that wait when the loop ends.
func (l *loopState) failWaiting(cause error) {
	l.n.failReplies(l.n.apply.takeAll())
	for _, reply := range l.waiting {
		reply <- core.Reply{Err: fmt.Errorf("%w: %w", api.ErrUnknownOutcome, cause)}
	}
	for {
		select {
		case r := <-l.n.requests:
			if r.reply != nil {
				r.reply <- core.Reply{Err: cause}
			}
		default:
			return
		}
	}
}
