package raftlog_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

// TestDisk_WriteErrorStopsPeer checks that a peer stops with ErrFault when a write or sync fails, that its
// candidate publishes a final status, and that no confirmed update is lost.
func TestDisk_WriteErrorStopsPeer(t *testing.T) {
	for _, atLeader := range []bool{true, false} {
		for op := range 6 { // fail one of six operations of the disk, which alternate between writes and syncs
			t.Run(fmt.Sprintf("leader=%t/%d", atLeader, op), func(t *testing.T) {
				runCluster(t, 3, func(t *testing.T, h *harness) {
					leader := h.waitForLeader(t)
					p := leader
					if !atLeader {
						p = h.otherPeers(leader)[0]
					}
					other := h.otherPeers(leader, p)[0]
					c, second := startCandidate(t, h.nodeOf(p), "e"), (*candidate)(nil)
					c.waitForLeadership(t)
					second = startCandidate(t, h.nodeOf(other), "e")
					h.proposeAll(t, other, numberedUpdates("a", 3)...)
					broken := errors.New("the disk is broken")
					synctest.Wait()
					h.disks[p.ID].FailWith(h.disks[p.ID].Ops()+1+op, broken)
					var want []string
					for _, u := range numberedUpdates("b", 10) {
						proposeUntilKnown(t, h.nodeOf(other), api.NewRequestID(), u)
						want = append(want, u)
						synctest.Wait() // make the peer write and sync each entry separately
					}
					h.requireStopped(t, p, broken, c)
					second.waitForLeadership(t)
					h.requireUpdates(t, h.otherPeers(p), append(numberedUpdates("a", 3), want...)...)
				})
			})
		}
	}
}

// TestDisk_ReadErrorDoesNotStopOthers checks that a read error neither crashes the process nor stops other peers.
func TestDisk_ReadErrorDoesNotStopOthers(t *testing.T) {
	for op := 12; op < 28; op++ {
		runCluster(t, 3, func(t *testing.T, h *harness) {
			p := h.otherPeers(h.waitForLeader(t))[0]
			h.proposeAll(t, p, numberedUpdates("a", 10)...)
			require.NoError(t, h.stopPeer(p))
			h.disks[p.ID].FailReadAt(h.disks[p.ID].Reads() + 1 + op)
			n, err := h.openPeer(p)
			if err != nil {
				require.ErrorIs(t, err, testenv.ErrIO)
				return
			}
			time.Sleep(time.Second)
			if n.Err() != nil {
				require.ErrorIs(t, n.Err(), api.ErrFault)
				require.ErrorIs(t, n.Err(), testenv.ErrIO)
			}
			h.proposeAll(t, h.otherPeers(p)[0], "x")
		})
	}
}

// requireStopped waits until a peer has stopped, and requires that its node and its candidate c, which may be
// nil, report a fault with this cause.
func (h *harness) requireStopped(t testing.TB, p api.Peer, cause error, c *candidate) {
	t.Helper()
	n := h.nodeOf(p)
	waitFor(t, "the peer has stopped", func() bool {
		select {
		case <-n.Done():
			return true
		default:
			return false
		}
	})
	require.ErrorIs(t, n.Err(), api.ErrFault)
	require.ErrorIs(t, n.Err(), cause)
	require.Contains(t, n.Info().Fault, cause.Error())
	require.Zero(t, n.Info().Lease)
	for _, err := range []error{
		func() error { _, err := n.Propose(t.Context(), api.NewRequestID(), nil); return err }(),
		n.Sync(t.Context()), n.Close(),
	} {
		require.ErrorIs(t, err, api.ErrFault)
		require.ErrorIs(t, err, cause)
	}
	if c == nil {
		return
	}
	c.waitForEnd(t, leaderelection.ErrConnClosed)
	require.ErrorIs(t, c.err, api.ErrFault)
	require.ErrorIs(t, c.Current().Err, api.ErrFault)
	require.False(t, c.isLeader())
}

// TestStateMachine_ErrorStopsPeer checks that a peer stops with ErrFault when its state machine returns an
// error, and that it can be started again.
func TestStateMachine_ErrorStopsPeer(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.otherPeers(h.waitForLeader(t))[0]
		other := h.otherPeers(p)[0]
		c := startLeader(t, h.nodeOf(p), "e")
		broken := errors.New("cannot add")
		h.machine(p).failApply(broken)
		h.proposeAll(t, other, "a")
		h.requireStopped(t, p, broken, c)
		h.proposeAll(t, other, "b")
		h.startPeer(p)
		h.requireUpdates(t, h.peers, "a", "b")
	})
}

// TestRaftLibrary_PanicStopsOnlyItsNode checks that a panic of the Raft library, the engine, stops the node
// with ErrFault and does not end the process. The test sends a message that peers never send, and that makes
// the library panic.
func TestRaftLibrary_PanicStopsOnlyItsNode(t *testing.T) {
	runCluster(t, 5, func(t *testing.T, h *harness) {
		p := h.waitForLeader(t)
		sender := h.otherPeers(p)[0]
		c := startLeader(t, h.nodeOf(p), "e")
		conn := h.impersonatePeer(t, sender, p)
		frame := engineFrame(t, sender, p, &raftpb.Message{
			Type: raftpb.MsgHeartbeatResp.Enum(), Term: new(h.nodeOf(p).Info().Term), Context: []byte{1},
		})
		waitFor(t, "the peer has stopped", func() bool {
			conn.Send(p.ID, true, frame)
			return h.nodeOf(p).Err() != nil
		})
		<-h.nodeOf(p).Done()
		err := h.nodeOf(p).Close()
		require.ErrorIs(t, err, api.ErrFault)
		require.ErrorContains(t, err, "index out of range")
		require.ErrorContains(t, err, "(*RawNode).Step", "the error has no stack trace")
		c.waitForEnd(t, api.ErrFault)
		proposeUntilKnown(t, h.nodeOf(h.otherPeers(p, sender)[0]), api.NewRequestID(), "x")
	})
}

// TestStateMachine_PanicEndsProcess checks that a panic of a state machine ends the process. The test runs
// itself in another process.
func TestStateMachine_PanicEndsProcess(t *testing.T) {
	if os.Getenv("RAFTLOG_PANIC") != "" {
		runCluster(t, 1, func(t *testing.T, h *harness) {
			h.restart(t, h.peers[0], func(c *raftlog.Config) { c.StateMachine = panickingMachine{} })
			h.proposeAll(t, h.peers[0], "a")
		})
		return
	}
	cmd := exec.CommandContext(contextWithin(t, time.Minute), os.Args[0], "-test.run", "^TestStateMachine_PanicEndsProcess$")
	cmd.Env = append(os.Environ(), "RAFTLOG_PANIC=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "panic: the state machine failed")
}

// panickingMachine is a state machine whose Apply panics.
type panickingMachine struct{ failingMachine }

func (panickingMachine) Apply([]api.Entry, uint64) error { panic("the state machine failed") }

// TestOpen_FailsIfSnapshotCannotBeRestored checks that Open returns the error of a state machine that cannot
// restore the snapshot, and that another state machine can restore it.
func TestOpen_FailsIfSnapshotCannotBeRestored(t *testing.T) {
	runCluster(t, 1, func(t *testing.T, h *harness) {
		p := h.peers[0]
		h.proposeAll(t, p, "a")
		h.compact(t, p)
		require.NoError(t, h.stopPeer(p))
		broken := errors.New("no")
		for range 2 {
			_, err := h.openPeer(p, func(c *raftlog.Config) { c.StateMachine = failingMachine{broken} })
			require.ErrorIs(t, err, broken)
		}
		h.startPeer(p)
		h.requireUpdates(t, h.peers, "a")
	})
}

// failingMachine is a state machine that cannot restore a snapshot.
type failingMachine struct{ err error }

func (b failingMachine) LastApplied() (uint64, error) { return 0, nil }

func (b failingMachine) Apply([]api.Entry, uint64) error { return nil }

func (b failingMachine) Snapshot() (io.WriterTo, error) { return nil, nil }

func (b failingMachine) Restore(uint64, io.Reader) error { return b.err }
