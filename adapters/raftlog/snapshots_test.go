package raftlog_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/transport"
)

// listFiles returns the files in a directory of a peer whose names have the prefix.
func (h *harness) listFiles(t testing.TB, p api.Peer, dir, prefix string) []string {
	t.Helper()
	names, err := h.disks[p.ID].List(dir)
	require.NoError(t, err)
	var all []string
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			all = append(all, name)
		}
	}
	return all
}

func shortWindow(c *raftlog.Config) { c.Window = time.Minute }

// TestRestart_DurableMachineReceivesEachUpdateOnce checks that a state machine that stores its state itself
// receives no update again when its peer restarts.
func TestRestart_DurableMachineReceivesEachUpdateOnce(t *testing.T) {
	runCluster(t, 1, func(t *testing.T, h *harness) {
		p := h.peers[0]
		require.NoError(t, h.stopPeer(p))
		sm := &durableMachine{}
		keeps := func(c *raftlog.Config) { c.StateMachine = sm }
		h.startPeer(p, keeps)
		h.proposeAll(t, p, numberedUpdates("a", 10)...)
		h.compact(t, p)
		h.proposeAll(t, p, numberedUpdates("b", 10)...)
		for range 2 {
			h.restart(t, p, keeps)
			h.syncPeer(t, p)
			require.Equal(t, append(numberedUpdates("a", 10), numberedUpdates("b", 10)...), sm.recordedUpdates())
			require.Zero(t, sm.restored)
			s := h.nodeOf(p).Subscribe(t.Context(), 1)
			r := &streamReader{next: 1}
			r.readUntil(t, s, "b9")
			s.Close()
		}
		h.proposeAll(t, p, "c")
		require.Equal(t, append(append(numberedUpdates("a", 10), numberedUpdates("b", 10)...), "c"), sm.recordedUpdates())
	})
}

// TestRestart_SucceedsIfStateMachineIsAheadOfLog checks that a peer starts even if its state machine includes
// entries that its log lacks, because they were not on this peer's disk when the power failed, although other
// peers have stored them.
func TestRestart_SucceedsIfStateMachineIsAheadOfLog(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.otherPeers(h.waitForLeader(t))[0]
		sm := &durableMachine{}
		h.restart(t, p, func(c *raftlog.Config) { c.StateMachine = sm })
		h.proposeAll(t, h.peers[0], numberedUpdates("a", 10)...)
		h.syncPeer(t, p)
		require.NoError(t, h.stopPeer(p))
		index := uint64(0)
		for _, u := range numberedUpdates("b", 5) {
			i, err := h.nodeOf(h.otherPeers(p)[0]).Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte(u))
			require.NoError(t, err)
			require.NoError(t, sm.Apply([]api.Entry{{Index: i, Data: []byte(u)}}, i))
			index = i
		}
		heal := h.isolate(p)
		h.startPeer(p, func(c *raftlog.Config) { c.StateMachine = sm })
		s := h.nodeOf(p).Subscribe(t.Context(), 1)
		r := &streamReader{next: 1}
		r.readUntil(t, s, "a9")
		waitForProgress(t, s, func(p *api.Progress) bool { return !p.Fresh })
		_, err := h.nodeOf(p).Compact(contextWithin(t, time.Minute))
		require.ErrorIs(t, err, api.ErrBusy, "the state machine includes entries that the log does not have yet")
		heal()
		r.readUntil(t, s, "b4")
		s.Close()
		h.propose(t, p, api.NewRequestID(), "c")
		require.Greater(t, sm.applied, index)
		require.Equal(t, append(append(numberedUpdates("a", 10), numberedUpdates("b", 5)...), "c"), sm.recordedUpdates())
	})
}

// durableMachine is a state machine that keeps its state when its peer restarts.
type durableMachine struct {
	recorder
	restored int
}

func (d *durableMachine) LastApplied() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.applied, nil
}

func (d *durableMachine) Restore(index uint64, r io.Reader) error {
	d.restored++
	return d.recorder.Restore(index, r)
}

// TestSnapshot_IsSentToPeerBehindLog checks that the leader sends a snapshot to a peer that needs entries
// before the start of the leader's log, and that the subscribers of this peer continue after the snapshot.
func TestSnapshot_IsSentToPeerBehindLog(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		isolated := h.otherPeers(leader)[0]
		s := h.nodeOf(isolated).Subscribe(t.Context(), 1)
		defer s.Close()
		h.proposeAll(t, isolated, "early")
		heal := h.leaveBehind(t, isolated)
		for _, p := range h.otherPeers(isolated) {
			require.Greater(t, h.nodeOf(p).Info().FirstIndex, h.nodeOf(isolated).Info().LastIndex+1)
		}
		h.proposeAll(t, leader, numberedUpdates("b", 5)...)
		heal()
		want := append(append([]string{"early"}, numberedUpdates("a", 20)...), numberedUpdates("b", 5)...)
		h.requireUpdates(t, h.peers, want...)
		i := h.nodeOf(isolated).Info()
		require.Greater(t, i.SnapshotIndex, uint64(20))
		require.Equal(t, i.SnapshotIndex+1, i.FirstIndex)
		require.Empty(t, h.listFiles(t, isolated, ".", "snap.received"))
		r := &streamReader{next: 1}
		r.readUntil(t, s, "b4")
		require.Equal(t, want, r.updates, "the subscriber received the snapshot")
		h.proposeAll(t, isolated, "later")
		h.crashPeer(isolated)
		h.startPeer(isolated, slowElections, shortWindow)
		h.requireUpdates(t, h.peers, append(want, "later")...)
	}, slowElections, shortWindow)
}

// TestSnapshot_BrokenFileDoesNotStopPeers checks that a leader whose snapshot file is broken while it runs logs
// the name of the file, that no peer stops, and that a peer that needs a snapshot receives the next one.
// Compact replaces a broken snapshot, but neither a snapshot of another cluster nor a directory.
func TestSnapshot_BrokenFileDoesNotStopPeers(t *testing.T) {
	for name, c := range map[string]struct {
		breakFile func(d *testenv.Disk) error
		// removed says that the test must remove the file, because Compact does not replace it but
		// returns an error with its name.
		removed bool
	}{
		"flipped bit": {breakFile: func(d *testenv.Disk) error {
			f, err := d.Open("snap")
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte("x"), 100)
			return errors.Join(err, f.Sync(), f.Close())
		}},
		"empty":   {breakFile: func(d *testenv.Disk) error { return disk.Replace(d, "snap", nil) }},
		"missing": {breakFile: func(d *testenv.Disk) error { return d.Remove("snap") }},
		"of another cluster": {removed: true, breakFile: func(d *testenv.Disk) error {
			installOtherSnapshot(t, nil, d)
			return nil
		}},
		"directory": {removed: true, breakFile: func(d *testenv.Disk) error {
			return errors.Join(d.Remove("snap"), d.MkdirAll("snap"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			runCluster(t, 3, func(t *testing.T, h *harness) {
				leader := h.waitForLeader(t)
				isolated := h.otherPeers(leader)[0]
				h.proposeAll(t, isolated, "early")
				heal := h.leaveBehind(t, isolated)
				require.NoError(t, c.breakFile(h.disks[leader.ID]))
				heal()
				h.proposeAll(t, leader, "b")
				time.Sleep(time.Minute)
				h.proposeAll(t, h.otherPeers(isolated, leader)[0], "c")
				require.Contains(t, h.logOf(leader), "snap")
				time.Sleep(4 * time.Minute)
				_, err := h.nodeOf(leader).Compact(contextWithin(t, time.Minute))
				if c.removed {
					require.ErrorContains(t, err, "snap")
					require.NoError(t, h.disks[leader.ID].Remove("snap"))
					_, err = h.nodeOf(leader).Compact(contextWithin(t, time.Minute))
				}
				require.NoError(t, err)
				h.proposeAll(t, leader, "d")
				h.requireUpdates(t, h.peers, append(append([]string{"early"}, numberedUpdates("a", 20)...), "b", "c", "d")...)
			}, slowElections, shortWindow)
		})
	}
}

// TestSnapshot_IsReceivedAgainAfterCrash checks that a peer that crashes at any moment while it receives or
// installs a snapshot receives a snapshot after its restart.
func TestSnapshot_IsReceivedAgainAfterCrash(t *testing.T) {
	for seed := range 5 {
		runCluster(t, 3, func(t *testing.T, h *harness) {
			leader := h.waitForLeader(t)
			isolated := h.otherPeers(leader)[0]
			h.crashPeer(isolated)
			h.proposeAll(t, leader, numberedUpdates("a", 20)...)
			time.Sleep(4 * time.Minute)
			h.compact(t, h.otherPeers(isolated)...)
			d := h.disks[isolated.ID]
			d.CrashAt(d.Ops() + 8 + 7*seed) // at an operation of the disk that receives or installs the snapshot
			if _, err := h.openPeer(isolated, slowElections, shortWindow); err == nil {
				time.Sleep(10 * time.Second)
				h.crashPeer(isolated)
			} else {
				h.disks[isolated.ID] = d.Crash()
			}
			h.startPeer(isolated, slowElections, shortWindow)
			h.requireUpdates(t, h.peers, numberedUpdates("a", 20)...)
			require.Empty(t, h.listFiles(t, isolated, ".", "snap.received"))
		}, slowElections, shortWindow)
	}
}

// TestSnapshot_IsRejectedUnlessAsAnnounced checks that a peer neither installs a snapshot that differs from its
// announcement by the leader, nor stops because of it.
func TestSnapshot_IsRejectedUnlessAsAnnounced(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		h.proposeAll(t, leader, "a")
		p, sender := h.otherPeers(leader)[0], h.otherPeers(leader)[1]
		conn := h.impersonatePeer(t, sender, p)
		file := h.newSnapshotFile(t, 500, 9)
		send := func(index, term uint64, size int64, body io.Reader) error {
			err := conn.Snapshot(contextWithin(t, time.Minute), p.ID, snapshotFrame(t, sender, p, index, term), size, body)
			require.Error(t, err)
			require.NoError(t, h.nodeOf(p).Err())
			require.Empty(t, h.listFiles(t, p, ".", "snap.received"))
			return err
		}
		h.disks[p.ID].SetSpace(1 << 20)
		ops := h.disks[p.ID].Ops()
		require.ErrorContains(t, send(500, 9, int64(len(file)), bytes.NewReader(file)), "is not the leader")
		require.ErrorContains(t, send(500, 9, 1<<62, endlessData{}), "is not the leader")
		require.Equal(t, ops, h.disks[p.ID].Ops(), "the data was written before the header was checked")
		for _, c := range []struct {
			index, term uint64
			size        int64
			body        io.Reader
			err         string
		}{
			{501, 9, int64(len(file)), bytes.NewReader(file), "announces a snapshot"},
			{500, 8, int64(len(file)), bytes.NewReader(file), "announces a snapshot"},
			{500, 9, 1 << 62, endlessData{}, "no space on the disk for a snapshot of"},
		} {
			// Send a heartbeat first, so that p follows the sender for at least an election timeout, and
			// examines its snapshot.
			conn.Send(p.ID, true, engineFrame(t, sender, p, &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), Term: new(uint64(9))}))
			time.Sleep(10 * time.Millisecond)
			require.ErrorContains(t, send(c.index, c.term, c.size, c.body), c.err)
		}
		h.disks[p.ID].SetSpace(-1)
		proposeUntilKnown(t, h.nodeOf(p), api.NewRequestID(), "b")
		h.requireUpdates(t, h.otherPeers(sender), "a", "b")
	})
}

// endlessData is a reader of snapshot data that never ends.
type endlessData struct{}

func (endlessData) Read(p []byte) (int, error) { return len(p), nil }

// TestSnapshot_OnlyOneIsReceivedAtATime checks that a peer stores at most one incomplete snapshot, even if the
// sender starts to send a second one.
func TestSnapshot_OnlyOneIsReceivedAtATime(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		p, sender := h.otherPeers(leader)[0], h.otherPeers(leader)[1]
		conn := h.impersonatePeer(t, sender, p)
		file := h.newSnapshotFile(t, 500, 9)
		most := 0
		for range 2 {
			conn.Send(p.ID, true, engineFrame(t, sender, p, &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), Term: new(uint64(9))}))
			time.Sleep(10 * time.Millisecond)
			body, stalled := io.Pipe()
			defer stalled.Close()
			go func() {
				_ = conn.Snapshot(contextWithin(t, time.Minute), p.ID, snapshotFrame(t, sender, p, 500, 9), int64(len(file)), body)
			}()
			time.Sleep(10 * time.Millisecond)
			most = max(most, len(h.listFiles(t, p, ".", "snap.received")))
		}
		require.Equal(t, 1, most)
		proposeUntilKnown(t, h.nodeOf(p), api.NewRequestID(), "b")
	})
}

// impersonatePeer stops peer p, and returns a transport that authenticates itself as p and has a connection
// to the peer in the parameter to.
func (h *harness) impersonatePeer(t *testing.T, p, to api.Peer) *transport.Transport {
	t.Helper()
	require.NoError(t, h.stopPeer(p))
	l, err := h.net.Listen(p.Addr)
	require.NoError(t, err)
	owner, err := identity.ReadOwner(h.disks[p.ID])
	require.NoError(t, err)
	owner.Starts++
	require.NoError(t, owner.Write(h.disks[p.ID]))
	tr := transport.New(transport.Config{
		Self: link.Identity{
			Cluster: "test", ID: p.ID, Peer: true, Addr: p.Addr, Insecure: true, Claim: owner.Claim(identity.New()),
		}, Listener: l,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) { return h.net.Dial(ctx, p.Addr, addr) },
	})
	tr.SetPeers([]api.Peer{to})
	require.NoError(t, tr.Run())
	t.Cleanup(tr.Close)
	time.Sleep(time.Second) // wait until the other peer has noticed that the process of p has stopped
	return tr
}

// snapshotFrame returns the frame that announces a snapshot by a leader of term 9.
func snapshotFrame(t testing.TB, from, to api.Peer, index, term uint64) []byte {
	t.Helper()
	return engineFrame(t, from, to, &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), Term: new(uint64(9)),
		Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: &index, Term: &term, ConfState: &raftpb.ConfState{Voters: []uint64{raftNumber(from), raftNumber(to)}},
		}},
	})
}

func raftNumber(p api.Peer) uint64 { return replica.RaftID("test", p.ID) }

// engineFrame returns a message of the Raft library as a frame.
func engineFrame(t testing.TB, from, to api.Peer, m *raftpb.Message) []byte {
	t.Helper()
	m.From, m.To = new(raftNumber(from)), new(raftNumber(to))
	body, err := proto.Marshal(m)
	require.NoError(t, err)
	return append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0}, body...)
}

// newSnapshotFile returns the content of a snapshot file up to the entry with the given index and term.
func (h *harness) newSnapshotFile(t testing.TB, index, term uint64) []byte {
	t.Helper()
	var voters []replica.Peer
	for _, p := range h.peers {
		voters = append(voters, replica.Numbered("test", p))
	}
	st := replica.New(voters, time.Hour, 200*time.Millisecond)
	st.Index, st.Term = index, term
	d := testenv.NewDisk(1)
	s, err := snapshot.Create(d, ".", snapshot.Meta{Cluster: "test", Index: index, Term: term})
	require.NoError(t, err)
	_, err = st.View().WriteTo(s.Tables())
	require.NoError(t, err)
	data, err := (&recorder{}).Snapshot()
	require.NoError(t, err)
	_, err = data.WriteTo(s.Data())
	require.NoError(t, err)
	require.NoError(t, s.Commit())
	r, err := snapshot.OpenFile(d, snapshot.Name)
	require.NoError(t, err)
	defer r.Close()
	raw, err := io.ReadAll(io.NewSectionReader(r.Raw(), 0, r.Size()))
	require.NoError(t, err)
	return raw
}
