package raftlog_test

// What fails stops its peer, says so, and stops nobody else.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk/crashdisk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// A disk that fails, in whatever operation and at whomever, is the end of its peer; its
// candidate has a final status, and what was confirmed is at the others.
func TestDiskFails(t *testing.T) {
	for _, atLeader := range []bool{true, false} {
		for op := range 6 { // writes and syncs in turn
			t.Run(fmt.Sprintf("leader=%t/%d", atLeader, op), func(t *testing.T) {
				inWorld(t, 3, func(t *testing.T, w *world) {
					leader := w.leader(t)
					p := leader
					if !atLeader {
						p = w.others(leader)[0]
					}
					other := w.others(leader, p)[0]
					c, second := stand(t, w.node(p), "e"), (*candidate)(nil)
					c.awaitLeader(t)
					second = stand(t, w.node(other), "e")
					w.propose(t, other, few("a", 3)...)
					broken := errors.New("the disk is broken")
					synctest.Wait()
					w.disks[p.ID].FailWith(w.disks[p.ID].Ops()+1+op, broken)
					var want []string
					for _, u := range few("b", 10) {
						insist(t, w.node(other), requestid.New(), u)
						want = append(want, u)
						synctest.Wait() // each is a write and a sync of its own, here too
					}
					w.stopped(t, p, broken, c)
					second.awaitLeader(t)
					w.has(t, w.others(p), append(few("a", 3), want...)...)
				})
			})
		}
	}
}

// A disk that cannot be read is no reason to crash the program, either.
func TestDiskCannotBeRead(t *testing.T) {
	for op := 12; op < 28; op++ {
		inWorld(t, 3, func(t *testing.T, w *world) {
			p := w.others(w.leader(t))[0]
			w.propose(t, p, few("a", 10)...)
			require.NoError(t, w.stop(p))
			w.disks[p.ID].FailReadAt(w.disks[p.ID].Reads() + 1 + op)
			n, err := w.open(p)
			if err != nil {
				require.ErrorIs(t, err, crashdisk.ErrIO)
				return
			}
			time.Sleep(time.Second)
			if n.Err() != nil {
				require.ErrorIs(t, n.Err(), api.ErrFault)
				require.ErrorIs(t, n.Err(), crashdisk.ErrIO)
			}
			w.propose(t, w.others(p)[0], "the others go on")
		})
	}
}

// stopped waits for the end of a peer by a fault, and of its candidate.
func (w *world) stopped(t testing.TB, p api.Peer, cause error, c *candidate) {
	t.Helper()
	n := w.node(p)
	await(t, "it has stopped", func() bool {
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
		func() error { _, err := n.Propose(t.Context(), requestid.New(), nil); return err }(),
		n.Sync(t.Context()), n.Close(),
	} {
		require.ErrorIs(t, err, api.ErrFault)
		require.ErrorIs(t, err, cause)
	}
	if c == nil {
		return
	}
	<-c.ended
	require.ErrorIs(t, c.err, leaderelection.ErrConnClosed)
	require.ErrorIs(t, c.err, api.ErrFault)
	require.ErrorIs(t, c.Current().Err, api.ErrFault)
	require.False(t, c.leads())
}

func TestStateMachineFails(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.others(w.leader(t))[0]
		other := w.others(p)[0]
		c := stand(t, w.node(p), "e")
		c.awaitLeader(t)
		broken := errors.New("cannot add")
		w.sm(p).fails(broken)
		w.propose(t, other, "a")
		w.stopped(t, p, broken, c)
		w.propose(t, other, "b")
		w.start(p)
		w.has(t, w.peers, "a", "b")
	})
}

// A panic of the engine is the end of its peer, and not of the process. The message is one that
// the engine never sends, and by which it does.
func TestEnginePanics(t *testing.T) {
	inWorld(t, 5, func(t *testing.T, w *world) {
		p := w.leader(t)
		sender := w.others(p)[0]
		c := stand(t, w.node(p), "e")
		c.awaitLeader(t)
		as := w.impersonate(t, sender, p)
		frame := message(t, sender, p, &raftpb.Message{
			Type: raftpb.MsgHeartbeatResp.Enum(), Term: new(w.node(p).Info().Term), Context: []byte{1},
		})
		await(t, "it has stopped", func() bool {
			as.Send(p.ID, true, frame)
			return w.node(p).Err() != nil
		})
		<-w.node(p).Done()
		err := w.node(p).Close()
		require.ErrorIs(t, err, api.ErrFault)
		require.ErrorContains(t, err, "index out of range")
		require.ErrorContains(t, err, "(*RawNode).Step", "the stack")
		<-c.ended
		require.ErrorIs(t, c.err, api.ErrFault)
		insist(t, w.node(w.others(p, sender)[0]), requestid.New(), "the others go on")
	})
}

// A panic of a state machine is its program's.
func TestStateMachinePanics(t *testing.T) {
	if os.Getenv("RAFTLOG_PANIC") != "" {
		inWorld(t, 1, func(t *testing.T, w *world) {
			require.NoError(t, w.stop(w.peers[0]))
			w.start(w.peers[0], func(c *raftlog.Config) { c.StateMachine = panicking{} })
			w.propose(t, w.peers[0], "a")
		})
		return
	}
	run := exec.CommandContext(within(t, time.Minute), os.Args[0], "-test.run", "^TestStateMachinePanics$")
	run.Env = append(os.Environ(), "RAFTLOG_PANIC=1")
	out, err := run.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "panic: of the state machine")
}

type panicking struct{ brokenAtOpen }

func (panicking) Apply([]api.Entry, uint64) error { panic("of the state machine") }

// A state machine whose snapshot cannot be restored, or that cannot tell where it is, keeps
// its peer from opening.
func TestStateMachineFailsAtOpen(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.peers[0]
		w.propose(t, p, "a")
		_, err := w.node(p).Compact(within(t, time.Minute))
		require.NoError(t, err)
		require.NoError(t, w.stop(p))
		broken := errors.New("no")
		for range 2 {
			_, err = w.open(p, func(c *raftlog.Config) { c.StateMachine = brokenAtOpen{broken} })
			require.ErrorIs(t, err, broken)
		}
		w.start(p)
		w.has(t, w.peers, "a")
	})
}

type brokenAtOpen struct{ err error }

func (b brokenAtOpen) LastApplied() (uint64, error)    { return 0, nil }
func (b brokenAtOpen) Apply([]api.Entry, uint64) error { return nil }
func (b brokenAtOpen) Snapshot() (io.WriterTo, error)  { return nil, nil }
func (b brokenAtOpen) Restore(uint64, io.Reader) error { return b.err }

// TestOpen_EarlierFormat fails if a node opens a directory of an earlier format, whose records it
// cannot decode, or if the error does not name the cause.
func TestOpen_EarlierFormat(t *testing.T) {
	for _, format := range []string{"1", "2", "4"} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			p := w.peers[0]
			require.NoError(t, w.stop(p))
			d := w.disks[p.ID]
			text, err := disk.ReadSmall(d, "peer.json")
			require.NoError(t, err)
			require.NoError(t, disk.Replace(d, "peer.json", bytes.Replace(text, []byte(`"format":3`), []byte(`"format":`+format), 1)))
			_, err = w.open(p)
			require.ErrorIs(t, err, api.ErrInvalid)
			require.ErrorContains(t, err, "format "+format)
		})
	}
}

// Damaged files are refused: the folder is as it was.
func TestDamageIsRefused(t *testing.T) {
	for _, what := range []string{"log", "snap", "peer.json", "no snap"} {
		inWorld(t, 3, func(t *testing.T, w *world) {
			p := w.others(w.leader(t))[0]
			w.propose(t, p, few("a", 50)...)
			_, err := w.node(p).Compact(within(t, time.Minute))
			require.NoError(t, err)
			require.NoError(t, w.stop(p))
			d := w.disks[p.ID]
			name := what
			switch what {
			case "log":
				name = "log/" + w.files(t, p, "log", "0")[0]
			case "no snap":
				require.NoError(t, d.Remove("snap"))
			}
			if what != "no snap" {
				damage(t, d, name)
			}
			before, err := d.List("log")
			require.NoError(t, err)
			for range 2 {
				_, err = w.open(p)
				require.ErrorIs(t, err, api.ErrFault, what)
			}
			after, err := d.List("log")
			require.NoError(t, err)
			require.Equal(t, before, after)
			w.propose(t, w.others(p)[0], "the others go on")
		})
	}
}

// damage changes a byte in the first part of a file.
func damage(t testing.TB, d *crashdisk.Disk, name string) {
	t.Helper()
	f, err := d.Open(name)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	at, b := min(size/2, 700), make([]byte, 1)
	_, err = f.ReadAt(b, at)
	require.NoError(t, err)
	b[0] ^= 0x11
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

// A folder is one peer's, and one process's.
func TestFolderIsRefused(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.peers[0]
		d := w.disks[p.ID]
		open := func(id, cluster, addr string) error {
			w.mu.Lock()
			w.disks[id] = d
			w.mu.Unlock()
			_, err := w.open(api.Peer{ID: id, Addr: addr}, func(c *raftlog.Config) { c.Cluster = cluster })
			return err
		}
		require.ErrorIs(t, open(p.ID, "test", "host7:1"), api.ErrInvalid)
		err := open("p7", "test", "host7:1")
		require.ErrorIs(t, err, api.ErrInvalid)
		require.ErrorContains(t, err, "in use")
		w.propose(t, p, "it works on")
		require.NoError(t, w.stop(p))
		require.ErrorIs(t, open("p7", "test", "host7:1"), api.ErrInvalid)
		require.ErrorIs(t, open(p.ID, "other", p.Addr), api.ErrInvalid)
		_, err = w.open(p, func(c *raftlog.Config) { c.ElectionTimeout, c.Heartbeat = time.Second, 0 })
		require.ErrorIs(t, err, api.ErrInvalid, "the election timeout is the cluster's")
		w.start(p)
		w.has(t, w.peers, "it works on")
	})
}

func TestConfigIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		for what, spoil := range map[string]func(*raftlog.Config){
			"no cluster":   func(c *raftlog.Config) { c.Cluster = "" },
			"no ID":        func(c *raftlog.Config) { c.ID = "" },
			"no address":   func(c *raftlog.Config) { c.Addr = "" },
			"no port":      func(c *raftlog.Config) { c.Addr = "host0" },
			"no peers":     func(c *raftlog.Config) { c.Peers = nil },
			"twice the ID": func(c *raftlog.Config) { c.Peers = append(slices.Clone(c.Peers), api.Peer{ID: "p1", Addr: "h:1"}) },
			"twice the address": func(c *raftlog.Config) {
				c.Peers = append(slices.Clone(c.Peers), api.Peer{ID: "p9", Addr: "host1:1"})
			},
			"itself elsewhere":      func(c *raftlog.Config) { c.Peers = []api.Peer{{ID: "p0", Addr: "elsewhere:1"}} },
			"no proof":              func(c *raftlog.Config) { c.Insecure = false },
			"short secret":          func(c *raftlog.Config) { c.Insecure, c.Secret = false, []byte("short") },
			"two proofs":            func(c *raftlog.Config) { c.Secret = make([]byte, 32) },
			"fast":                  func(c *raftlog.Config) { c.ElectionTimeout = 99 * time.Millisecond },
			"slow heartbeat":        func(c *raftlog.Config) { c.Heartbeat = 150 * time.Millisecond },
			"negative wait to join": func(c *raftlog.Config) { c.JoinTimeout = -1 },
			"window":                func(c *raftlog.Config) { c.Window = time.Second },
			"data":                  func(c *raftlog.Config) { c.MaxData = 17 << 20 },
			"negative data":         func(c *raftlog.Config) { c.MaxData = -1 },
			"negative request IDs":  func(c *raftlog.Config) { c.MaxRequestIDs = -1 },
		} {
			_, err := w.open(w.peers[0], spoil)
			require.ErrorIs(t, err, api.ErrInvalid, what)
		}
		w.startAll()
		w.propose(t, w.peers[0], "it was nothing")
	})
}
