package integrationtest

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestTrap32_SequenceOverflow fails if a sequence number that has overflowed to -2147483648 sorts first, as
// it does in text order. A real server reaches it only after 2^31 creates, so that the test creates znodes
// with such names.
func TestTrap32_SequenceOverflow(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	want := []string{"2147483646", "2147483647", "-2147483648", "-2147483647", "-0999999999"}
	for i := len(want) - 1; i >= 0; i-- { // created in the wrong order on purpose
		_, err := conn.Create(path.Join(node, "_c_"+newUUID()+"-latch-"+want[i]), []byte(want[i]), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	all, err := leaderelection.Candidates(t.Context(), conn.Conn, node)
	require.NoError(t, err)
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	require.Equal(t, want, names)
}

// TestTrap34_UnrecognizedChildren fails if children with unknown names disturb the order, or if a candidate
// follows one of them.
func TestTrap34_UnrecognizedChildren(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connect(t)
	node := createElectionNode(t, admin)
	foreign := []string{
		"a", "_c_x", "_c_", "latch-", "lock-", "DONE-", "0000000000", "-0000000000", "x-0000000000",
		"_c_" + newUUID() + "-latch-", "_c_" + newUUID() + "-latch-00000000x0", "_c_" + newUUID() + "-latch-9999999999",
		"_c_" + newUUID() + "-other-0000000000", "__lock__", "le_", "ünïcode-0000000000",
	}
	for _, name := range foreign {
		_, err := admin.Create(path.Join(node, name), nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err, name)
	}
	c, _ := startLeader(t, conn, node)
	next := startFollower(t, admin, node, c)
	all, err := leaderelection.Candidates(t.Context(), conn.Conn, node)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, c.ID(), all[0].ID)
	require.ErrorIs(t, c.EndElection(), leaderelection.ErrForeignChildren)
	for _, name := range foreign {
		deleteZnode(t, admin, path.Join(node, name))
	}
	next.requireNoStatus(t, 0)
	c.resign(t)
	next.requireLeader(t)
}

// TestTrap35_SequenceRestarts fails if the fencing token decreases after the election node was created
// again, because its sequence starts at 0 again.
func TestTrap35_SequenceRestarts(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	for range 3 {
		createContender(t, conn, node)
	}
	old := startCandidate(t, conn, node)
	old.nextStatus(t)
	oldToken := readStat(t, conn, old.ID()).Czxid
	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	old.requireEnded(t, leaderelection.ErrElectionOver)

	_, err := conn.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	c, l := startLeader(t, conn, node)
	sequence := func(id string) string { return id[len(id)-10:] }
	require.Less(t, sequence(c.ID()), sequence(old.ID()))
	require.Greater(t, l.Token(), oldToken)
}

// TestTrap38_ConcurrentCalls fails if concurrent calls create two znodes or two leaders, or leave a znode.
func TestTrap38_ConcurrentCalls(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
	for round := range 5 {
		node := createElectionNode(t, admin)
		c := newCandidate(t, conn, node, leaderelection.WithRejoin())
		// Several goroutines start the candidate while its connection flaps.
		var calls sync.WaitGroup
		var mu sync.Mutex
		started := 0
		for range 10 {
			calls.Go(func() {
				err := c.ElectLeader()
				mu.Lock()
				defer mu.Unlock()
				if !errors.Is(err, leaderelection.ErrAlreadyStarted) {
					assert.NoError(t, err)
					started++
				}
			})
		}
		conn.Network.Drop()
		for s := c.nextStatus(t); s.Role != leaderelection.Leader; s = c.nextStatus(t) {
			require.NoError(t, s.Err)
		}
		requireOnlyChild(t, admin, node, c, conn)
		for i := range 10 {
			calls.Go(func() {
				if i == round {
					conn.Network.Drop()
				}
				_ = c.Resign()
			})
		}
		calls.Wait()
		require.Equal(t, 1, started)
		electiontest.Confirm(t, c.Resign)
		require.Empty(t, listChildren(t, admin, node))
		conn.WaitConnected(t)
	}
}

// TestTrap39_NoCreateStorm fails if a candidate whose predecessor is missing creates a new znode, because
// then its follower would do the same, and so on.
func TestTrap39_NoCreateStorm(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
	node := createElectionNode(t, admin)
	const count = 30
	var all []*candidate
	for range count {
		c := startCandidate(t, conn, node, leaderelection.WithRejoin())
		c.nextStatus(t)
		all = append(all, c)
	}
	require.Equal(t, count, countCreates(t, admin, node))

	// Every second candidate is deleted, some of them while the connection is down.
	for i := 0; i < count; i += 2 {
		if i == count/2+1 {
			conn.Network.Cut()
		}
		deleteZnode(t, admin, all[i].ID())
	}
	conn.Network.Restore()
	for i := 0; i < count; i += 2 {
		for range all[i].remainingStatuses(t) { // the statuses before the final one
		}
		require.ErrorIs(t, all[i].waitResult(t), leaderelection.ErrDeleted)
	}
	harness.Eventually(t, func() bool { return all[1].Current().Role == leaderelection.Leader }, "the first remaining candidate does not lead")
	for i := 3; i < count; i += 2 {
		harness.Eventually(t, func() bool { return all[i].Current().NowFollowing == all[i-2].ID() }, "a candidate does not follow the previous one")
	}
	require.Equal(t, count, countCreates(t, admin, node), "a candidate was created again")
	require.Len(t, listChildren(t, admin, node), count/2)
}

// TestTrap43_LeaderVanishes fails if Observe or Candidates fails because the leader was deleted after
// the listing.
func TestTrap43_LeaderVanishes(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	for _, followers := range []int{0, 1} {
		t.Run(fmt.Sprint(followers, " followers"), func(t *testing.T) {
			node := createElectionNode(t, admin)
			isNode := func(path string) bool { return path == node }
			var want string
			vanish := func() {
				leader := createContender(t, admin, node)
				for range followers {
					want = createContender(t, admin, node)
				}
				rule := conn.Network[0].On(zkproxy.Rule{Op: zktest.OpGetChildren2, Path: isNode, Action: zkproxy.HoldReply})
				go func() {
					<-rule.Done()
					_ = admin.Delete(leader, -1)
					rule.Release()
				}()
			}
			vanish()
			ctx, cancel := context.WithCancel(t.Context())
			observations, err := leaderelection.Observe(ctx, conn.Conn, node)
			require.NoError(t, err)
			observed := <-observations
			cancel()
			require.NoError(t, observed.Err)
			require.Equal(t, followers > 0, observed.Leader != nil)
			if observed.Leader != nil {
				require.Equal(t, want, observed.Leader.ID)
				deleteZnode(t, admin, want)
			}

			vanish()
			all, err := leaderelection.Candidates(t.Context(), conn.Conn, node)
			require.NoError(t, err)
			require.Len(t, all, followers)
		})
	}

	// No leader is reported twice, or with the token of another, while leaders change.
	node := createElectionNode(t, admin)
	stop := make(chan struct{})
	changes := harness.InBackground(t, func() error {
		for {
			select {
			case <-stop:
				return nil
			default:
			}
			path, err := admin.Create(node+"/_c_"+newUUID()+"-latch-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			if err == nil {
				err = admin.Delete(path, -1)
			}
			if err != nil {
				return err
			}
		}
	})
	last := int64(0)
	for end := time.Now().Add(quietTime); time.Now().Before(end); {
		all, err := leaderelection.Candidates(t.Context(), conn.Conn, node)
		require.NoError(t, err)
		if len(all) > 0 {
			require.NotZero(t, all[0].Token)
			require.GreaterOrEqual(t, all[0].Token, last)
			last = all[0].Token
		}
	}
	close(stop)
	require.NoError(t, harness.Receive(t, changes, "the changes"))
}

// TestOrder_UnrecognizedChildren fails if a child that sorts first prevents the election of a leader, or if
// a child whose name contains DONE ends the election.
func TestOrder_UnrecognizedChildren(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	for _, name := range []string{"!", "0000000000", "config", "ABANDONED", "DONE-not", "le_x", "_c_latch-"} {
		_, err := conn.Create(path.Join(node, name), nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	leader, _ := startLeader(t, conn, node)
	follower := startFollower(t, conn, node, leader)
	leader.resign(t)
	follower.requireLeader(t)
}

// TestOrder_SequenceNumbers fails if names are sorted as strings, which misplaces an overflowed sequence
// number and the names of other libraries. internal/zk/contender tests the order in detail.
func TestOrder_SequenceNumbers(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	want := []string{
		"_c_ffffffff-0000-4000-8000-000000000000-latch-2147483646",
		"le_2147483647",
		"_c_eeeeeeee-0000-4000-8000-000000000000-latch--2147483648",
		"00000000000000000000000000000000__lock__-2147483647",
	}
	for i := range want {
		_, err := conn.Create(path.Join(node, want[len(want)-1-i]), nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	all, err := leaderelection.Candidates(t.Context(), conn.Conn, node)
	require.NoError(t, err)
	var names []string
	for _, c := range all {
		names = append(names, path.Base(c.ID))
	}
	require.Equal(t, want, names)
}

// TestOrder_SeveralCandidatesExpire fails if a follower does not become leader after the three candidates
// before it have lost their session together.
func TestOrder_SeveralCandidatesExpire(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node)
	f1 := startFollower(t, conn, node, leader)
	f2 := startFollower(t, conn, node, f1)
	last := startFollower(t, other, node, f2)
	conn.ExpireSession(t)
	s := last.nextStatus(t)
	for s.Role != leaderelection.Leader { // it may see any number of them leave one by one
		require.NoError(t, s.Err)
		require.Contains(t, []string{leader.ID(), f1.ID()}, s.NowFollowing)
		s = last.nextStatus(t)
	}
}

// TestOrder_MiddleFollowerDeleted fails if the deletion of a follower affects another candidate than its own
// follower.
func TestOrder_MiddleFollowerDeleted(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node)
	f1 := startFollower(t, conn, node, leader)
	f2 := startFollower(t, conn, node, f1)
	f3 := startFollower(t, other, node, f2)

	require.NoError(t, other.Delete(f2.ID(), -1))
	f2.requireEnded(t, leaderelection.ErrDeleted)
	require.Equal(t, f2.ID(), f3.requireFollower(t, f1).WasFollowing)
	f1.requireNoStatus(t, quietTime)
	leader.requireNoStatus(t, 0)
}

// TestOrder_LastFollowerDeleted fails if the deletion of the last follower affects other candidates.
func TestOrder_LastFollowerDeleted(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	follower := startFollower(t, conn, node, leader)
	last := startFollower(t, conn, node, follower)
	require.NoError(t, other.Delete(last.ID(), -1))
	last.requireEnded(t, leaderelection.ErrDeleted)
	electiontest.Confirm(t, last.Resign)
	leader.requireNoStatus(t, quietTime)
	follower.requireNoStatus(t, 0)
	require.NoError(t, grant.Err())
}

// TestOrder_OneLeader fails if several of many candidates become leader, or if two follow the same
// candidate.
func TestOrder_OneLeader(t *testing.T) {
	t.Parallel()
	conns := []*client{connect(t), connect(t), connect(t)}
	node := createElectionNode(t, conns[0])
	var all []*candidate
	for i := range 30 {
		all = append(all, startCandidate(t, conns[i%len(conns)], node))
	}
	leaders, followed := 0, map[string]bool{}
	for _, c := range all {
		s := c.nextStatus(t)
		if s.Role == leaderelection.Leader {
			leaders++
			continue
		}
		require.False(t, followed[s.NowFollowing], "two candidates follow %s", s.NowFollowing)
		followed[s.NowFollowing] = true
	}
	require.Equal(t, 1, leaders)
	for _, c := range all {
		c.requireNoStatus(t, 10*time.Millisecond)
	}
}
