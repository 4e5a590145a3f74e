package integrationtest

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// The mark of an election's end and the identity of an election.

func isMark(path string) bool { return strings.HasSuffix(path, "/DONE") }

// A deletion that stops after the mark: from then on nobody wins, not even the
// second in line, which need not ask when the leader goes.
func TestMarkKeepsTheSecondFromWinning(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	leader, grant := lead(t, connect(t), node)
	second := follow(t, connect(t), node, leader)
	third := follow(t, connect(t), node, second)

	deleter := connectShortly(t)
	// The first transaction is the mark; the second would delete candidates.
	stop := deleter.link[0].On(zkproxy.Rule{Op: zkproxy.OpMulti, K: 2, Action: zkproxy.CutBeforeRequest})
	deleter.link.refuse()
	err := leaderelection.DeleteElection(deleter.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
	await(t, stop.Done(), "the deletion was not stopped")

	second.ends(t, leaderelection.ErrElectionOver) // woken by the mark
	third.ends(t, leaderelection.ErrElectionOver)
	require.NoError(t, grant.Err(), "nobody has told the leader")
	leader.resign(t)
	newcomer := enlist(t, conn, node)
	newcomer.ends(t, leaderelection.ErrElectionOver)
	require.Equal(t, []string{"DONE"}, children(t, conn, node))

	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node), "the next call goes on")
	waitGone(t, conn, node)
}

// The reply to the mark gets lost, meanwhile somebody else ends the election
// and makes a new one: the mark must not get into that.
func TestMarkDoesNotReachANewElection(t *testing.T) {
	for name, enlisted := range map[string]bool{"empty election": false, "with a leader": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := connect(t)
			node := newNode(t, other)
			conn := connect(t)
			old := newCandidate(t, conn, node)
			var path func(string) bool
			if path = isMark; enlisted {
				lead(t, other, node)
				path = under(node)
			}
			cut := conn.link[0].On(zkproxy.Rule{Op: zkproxy.OpMulti, Path: path, Action: zkproxy.CutBeforeRequest})
			conn.link.refuse()
			ended := inBackground(t, old.EndElection)
			await(t, cut.Done(), "no mark was sent")

			require.NoError(t, leaderelection.DeleteElection(other.Conn, node))
			_, err := other.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			conn.link.restore()
			if err := await(t, ended, "EndElection does not return"); err != nil {
				require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
			}
			eventually(t, func() bool { return old.EndElection() == nil }, "the end is confirmed")

			_, grant := lead(t, other, node)
			require.NoError(t, grant.Err())
			require.Len(t, children(t, other, node), 1)
		})
	}
}

// Whoever is deleted together with the predecessor, the own znode first, as by
// libraries that end an election without a mark, does not lead for a moment.
func TestOwnEndComesBeforeAClaim(t *testing.T) {
	t.Parallel()
	conn, operator := connectShortly(t), connectShortly(t)
	for range 10 {
		node := newNode(t, operator)
		leader, _ := lead(t, connectShortly(t), node)
		second := follow(t, conn, node, leader)
		// Until the lease is there the second in line would ask.
		eventually(t, func() bool { return conn.link[0].Count(zkproxy.OpMulti) > 0 }, "a check")
		_, err := operator.Multi(deleteOf(second.ID()), deleteOf(leader.ID()))
		require.NoError(t, err)
		second.ends(t, leaderelection.ErrCandidateDeleted)
		conn.link[0].ResetLog()
	}
}

// A node that was deleted and created anew between NewElection and ElectLeader
// is another election than the one that the candidate was made for.
func TestCandidateOfARecreatedElection(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	old := newCandidate(t, conn, node)
	remove(t, conn, node)
	_, err := conn.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	old.start()
	old.ends(t, leaderelection.ErrElectionOver)
	require.Empty(t, children(t, conn, node))
	lead(t, conn, node)
}

// A leader whose znode was deleted by hand, and who cannot find out why, is
// told all the same.
func TestDeletionIsToldBeforeItIsExplained(t *testing.T) {
	t.Parallel()
	conn, operator := connect(t), connect(t)
	node := newNode(t, operator)
	leader, grant := lead(t, conn, node)
	held := conn.link[0].On(zkproxy.Rule{
		Op: zkproxy.OpExists, Path: under(node), Action: zkproxy.HoldReply, // is there an end marker?
	})
	remove(t, operator, leader.ID())
	ends(t, grant, leaderelection.ErrCandidateDeleted)
	require.Equal(t, leaderelection.Suspended, leader.next(t).Role)
	held.Release()
	leader.ends(t, leaderelection.ErrCandidateDeleted)
}

// hangingProvider is a zk.HostProvider whose Next hangs, as one does that looks
// up names while the name server is out of reach. The client library holds a
// lock meanwhile.
type hangingProvider struct {
	inOrder
	hang atomic.Bool
	gate chan struct{}
}

func (h *hangingProvider) Next() (string, bool) {
	if h.hang.Load() {
		<-h.gate
	}
	return h.inOrder.Next()
}

func TestLeaseEndsWhileAHostProviderHangs(t *testing.T) {
	t.Parallel()
	provider := &hangingProvider{gate: make(chan struct{})}
	conn := dialWith(t, shortTimeout, newLink(t, shared.Addrs()), nil, func(addrs []string) zk.HostProvider {
		provider.servers = addrs
		return provider
	})
	t.Cleanup(func() { close(provider.gate) })
	conn.waitForSession(t)
	other := connect(t)
	node := newNode(t, other)
	leader, grant := lead(t, conn, node)
	successor := follow(t, other, node, leader)

	provider.hang.Store(true)
	conn.link.cut()
	ends(t, grant, leaderelection.ErrLeaseExpired)
	require.Empty(t, successor.Status(), "told before another can lead")
	successor.leads(t)
}
