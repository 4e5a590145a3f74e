package integrationtest

import (
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// These tests show the known defects of Comcast's go-leaderelection absent, by
// their numbers. What was impossible with it (C18) is in the files of its own:
// TestC18....

// C1: a leader cut off from ZooKeeper was told nothing; a second one was
// elected meanwhile.
func TestC01TwoLeaders(t *testing.T) {
	t.Parallel()
	const elections = 12
	conn, elsewhere := connectShortly(t), connect(t)
	type pair struct {
		leader, follower *candidate
		grant            *leaderelection.Leadership
	}
	var pairs []pair
	for range elections {
		node := newNode(t, elsewhere)
		leader, grant := lead(t, conn, node)
		pairs = append(pairs, pair{leader, follow(t, elsewhere, node, leader), grant})
	}
	conn.link.freeze()
	for _, p := range pairs {
		next := p.follower.leads(t)
		select {
		case <-p.grant.Done():
		default:
			require.Fail(t, "two leaders")
		}
		require.Greater(t, next.Token(), p.grant.Token())
		require.Equal(t, leaderelection.Suspended, p.leader.next(t).Role)
	}
	conn.link.restore()
	for _, p := range pairs {
		p.leader.ends(t, leaderelection.ErrSessionExpired)
	}
}

// C2: the expiry of a session was reported as the end of the election, or not
// at all.
func TestC02SilentExpiry(t *testing.T) {
	t.Parallel()
	for range 6 {
		conn, elsewhere := connect(t), connect(t)
		var leaders, followers []*candidate
		for range 6 {
			node := newNode(t, elsewhere)
			leader, _ := lead(t, conn, node)
			leaders = append(leaders, leader)
			other := newNode(t, elsewhere)
			first, _ := lead(t, elsewhere, other)
			followers = append(followers, follow(t, conn, other, first))
		}
		expire(t, conn)
		conn.link.restore()
		for _, c := range append(leaders, followers...) {
			c.ends(t, leaderelection.ErrSessionExpired)
		}
	}
}

// C3: a change of a candidate's data ended the watch on it: a follower was
// never promoted, a leader not told of its deletion.
func TestC03DataChange(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := newNode(t, conn)
	leader, _ := lead(t, conn, node)
	f1 := follow(t, conn, node, leader)
	f2 := follow(t, conn, node, f1)
	for _, c := range []*candidate{leader, f1, f2} {
		for range 2 {
			_, err := elsewhere.Set(c.ID(), []byte("changed"), -1)
			require.NoError(t, err)
		}
	}
	for _, c := range []*candidate{leader, f1, f2} {
		c.quiet(t, calm)
	}
	f1.resign(t)
	f2.follows(t, leader)
	require.NoError(t, elsewhere.Delete(leader.ID(), -1))
	leader.ends(t, leaderelection.ErrCandidateDeleted)
	f2.leads(t)
	_, err := elsewhere.Set(f2.ID(), []byte("changed again"), -1)
	require.NoError(t, err)
	require.NoError(t, leaderelection.DeleteElection(elsewhere.Conn, node))
	f2.ends(t, leaderelection.ErrElectionOver)
}

// C3: such a follower used a whole CPU.
func TestC03BusyLoop(t *testing.T) {
	conn, elsewhere := connect(t), connect(t)
	node := newNode(t, conn)
	leader, _ := lead(t, conn, node)
	follower := follow(t, conn, node, leader)
	_, err := elsewhere.Set(leader.ID(), []byte("changed"), -1)
	require.NoError(t, err)
	before := cpuTime(t)
	follower.quiet(t, time.Second)
	require.Less(t, cpuTime(t)-before, 250*time.Millisecond, "CPU time of a second at rest")
}

// C4: EndElection did not end the election: the next to come led.
func TestC04EndElection(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	for range 20 {
		node := newNode(t, conn)
		leader, _ := lead(t, conn, node)
		late := newCandidate(t, conn, node)
		electiontest.Confirm(t, leader.EndElection)
		leader.ends(t, leaderelection.ErrElectionOver)
		late.start()
		late.ends(t, leaderelection.ErrElectionOver)
		_, err := leaderelection.NewElection(conn.Conn, node)
		require.ErrorIs(t, err, leaderelection.ErrNoElection)
	}
}

// C5: the second Resign, EndElection or ElectLeader panicked.
func TestC05Twice(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	c, _ := lead(t, conn, node)
	require.ErrorIs(t, c.ElectLeader(), leaderelection.ErrAlreadyStarted)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { electiontest.Confirm(t, c.Resign) })
	}
	wg.Wait()
	require.ErrorIs(t, c.ElectLeader(), leaderelection.ErrCandidacyOver)
	for range 8 {
		wg.Go(func() { electiontest.Confirm(t, c.EndElection) })
	}
	wg.Wait()
	require.NoError(t, c.EndElection())
	electiontest.Confirm(t, c.Resign)
	require.False(t, exists(t, conn, node))
}

// C6: Resign while disconnected left the znode: nobody led after the reconnect.
func TestC06Zombie(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := newNode(t, elsewhere)
	leader, grant := lead(t, conn, node)
	follower := follow(t, elsewhere, node, leader)
	session := conn.SessionID()

	conn.link.cut()
	begin := time.Now()
	require.ErrorIs(t, leader.Resign(), leaderelection.ErrUnconfirmed)
	require.Less(t, time.Since(begin), confirmed)
	require.ErrorIs(t, grant.Err(), leaderelection.ErrResigned)
	leader.isClosed(t)
	require.True(t, exists(t, elsewhere, leader.ID()), "the session is over")
	conn.link.restore()
	follower.leads(t)
	require.Equal(t, session, conn.SessionID())
	electiontest.Confirm(t, leader.Resign)
}

// C7: a lost reply to the create left a znode that nobody knew of at the head
// of the line.
func TestC07LostReply(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	for _, action := range []zkproxy.Action{zkproxy.CutBeforeRequest, zkproxy.CutAfterApplied} {
		node := newNode(t, elsewhere)
		c := newCandidate(t, conn, node)
		conn.link.beforeReconnect()
		lost := conn.link[0].On(zkproxy.Rule{Op: zkproxy.OpCreate, Action: action})
		c.start()
		await(t, lost.Done(), "the create")
		c.leads(t)
		require.Equal(t, []string{base(c)}, children(t, elsewhere, node))
		c.resign(t)
		require.Empty(t, children(t, elsewhere, node))
	}
}

// C8: after an error at the start the channel was not closed and ElectLeader
// did not return.
func TestC08ErrorAtStart(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	var late []*candidate
	for range 300 {
		late = append(late, newCandidate(t, conn, node))
	}
	marker := path.Join(node, "DONE")
	_, err := conn.Create(marker, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	for _, c := range late[:150] {
		c.start()
	}
	for _, c := range late[:150] {
		c.ends(t, leaderelection.ErrElectionOver)
	}
	require.Equal(t, []string{"DONE"}, children(t, conn, node))
	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	for _, c := range late[150:] {
		c.start()
	}
	for _, c := range late[150:] {
		c.ends(t, leaderelection.ErrElectionOver)
	}
}

// C9: after an error at a later election the candidate hung, without a watch.
func TestC09ErrorLater(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := newNode(t, conn)
	leader, _ := lead(t, conn, node)
	f1 := follow(t, elsewhere, node, leader)
	f2 := follow(t, conn, node, f1)
	// f2 may not list the election any more when it has to.
	_, err := conn.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
	require.NoError(t, err)
	f1.resign(t)
	f2.ends(t, leaderelection.ErrPermission)
	waitGone(t, elsewhere, f2.ID())
	leader.quiet(t, calm)
}

// C10: a predecessor that went between listing and watch was followed all the
// same.
func TestC10VanishedPredecessor(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := newNode(t, conn)
	leader, _ := lead(t, elsewhere, node)
	middle := follow(t, elsewhere, node, leader)

	c := newCandidate(t, conn, node)
	t.Cleanup(func() { _ = c.Resign() })
	listing := conn.link[0].On(zkproxy.Rule{
		Op: zkproxy.OpGetChildren2, Action: zkproxy.HoldReply,
		Path: func(p string) bool { return p == node },
	})
	c.start()
	await(t, listing.Done(), "the listing")
	middle.resign(t)
	listing.Release()
	require.Empty(t, c.follows(t, leader).WasFollowing)
	c.quiet(t, calm)

	// The same when it is the leader that vanishes.
	c2 := newCandidate(t, conn, node)
	t.Cleanup(func() { _ = c2.Resign() })
	listing = conn.link[0].On(zkproxy.Rule{
		Op: zkproxy.OpGetChildren2, Action: zkproxy.HoldReply,
		Path: func(p string) bool { return p == node },
	})
	c2.start()
	await(t, listing.Done(), "the listing")
	require.NoError(t, elsewhere.Delete(c.ID(), -1))
	leader.resign(t)
	listing.Release()
	c2.leads(t)
	c2.quiet(t, calm)
}

// C11: a child that sorted first kept everybody from leading, and one whose
// name contained DONE ended the election.
func TestC11ForeignChildren(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	for _, name := range []string{"!", "0000000000", "config", "ABANDONED", "DONE-not", "le_x", "_c_latch-"} {
		_, err := conn.Create(path.Join(node, name), nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	leader, _ := lead(t, conn, node)
	follower := follow(t, conn, node, leader)
	leader.resign(t)
	follower.leads(t)
}

// C12: names were sorted as strings, so that the overflow of the sequence
// number and protected names mixed the order up. A real server's counter
// cannot be brought to overflow in a test: internal/zk/contender tests the order, and
// here znodes with such names stand for the old ones.
func TestC12Order(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
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
	all, err := leaderelection.Candidates(conn.Conn, node)
	require.NoError(t, err)
	var names []string
	for _, c := range all {
		names = append(names, path.Base(c.ID))
	}
	require.Equal(t, want, names)
}

// C13: a reader that was late blocked the election and got outdated statuses.
func TestC13LateReader(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	leader, _ := lead(t, conn, node)
	line := []*candidate{leader}
	for range 4 {
		line = append(line, follow(t, conn, node, line[len(line)-1]))
	}
	late := enlist(t, conn, node)
	eventually(t, func() bool { return late.Current().NowFollowing == line[4].ID() }, "it follows")
	for i := 4; i > 0; i-- {
		line[i].resign(t)
		eventually(t, func() bool { return late.Current().NowFollowing == line[i-1].ID() }, "it follows the next")
	}
	leader.resign(t)
	eventually(t, func() bool { return late.Current().Role == leaderelection.Leader }, "it leads")
	late.leads(t)
	late.quiet(t, calm)
}

// C14: errors were texts to search. Here each has its value: the end of a
// leader by deletion, which had none, and see TestBadInput.
func TestC14TypedErrors(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	leader, grant := lead(t, conn, node)
	require.NoError(t, conn.Delete(leader.ID(), -1))
	leader.ends(t, leaderelection.ErrCandidateDeleted)
	ends(t, grant, leaderelection.ErrCandidateDeleted)
	require.NotErrorIs(t, leader.result(t), leaderelection.ErrElectionOver)
}

// C15: the candidate's ID was read and written without synchronisation; the
// race detector is the judge.
func TestC15DataRace(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	var all []*candidate
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		c := newCandidate(t, conn, node)
		all = append(all, c)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				s := c.Current()
				_ = c.ID() + s.String() + s.Role.String()
				if s.Leadership != nil {
					_, _ = s.Leadership.Err(), s.Leadership.Deadline()
				}
			}
		})
	}
	for _, c := range all {
		c.start()
	}
	for _, c := range all {
		eventually(t, func() bool { return c.ID() != "" }, "it takes part")
	}
	for _, c := range all {
		electiontest.Confirm(t, c.Resign)
	}
	close(stop)
	wg.Wait()
}

// C16: a candidate whose data had been set made the deletion of the whole
// election fail, with the end marker left behind.
func TestC16DeleteAfterDataChange(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	for _, end := range []func(*candidate) error{
		func(c *candidate) error { return c.EndElection() },
		func(c *candidate) error { return leaderelection.DeleteElection(conn.Conn, path.Dir(c.ID())) },
	} {
		node := newNode(t, conn)
		_, err := conn.Set(node, []byte("so was the election node's"), -1)
		require.NoError(t, err)
		leader, _ := lead(t, conn, node)
		follower := follow(t, conn, node, leader)
		_, err = conn.Set(follower.ID(), []byte("changed"), -1)
		require.NoError(t, err)
		require.NoError(t, end(leader))
		leader.ends(t, leaderelection.ErrElectionOver)
		follower.ends(t, leaderelection.ErrElectionOver)
		require.False(t, exists(t, conn, node))
	}
}

// C17: the watches of all followers that had resigned remained. There is one for each
// connection now.
func TestC17WatchLeak(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := newNode(t, conn)
	leader, grant := lead(t, elsewhere, node)
	for range 10 {
		follower := follow(t, conn, node, leader)
		require.Contains(t, watchers(t, leader.ID()), conn.SessionID(), "does the server tell of watches?")
		follower.resign(t)
		require.Equal(t, []int64{conn.SessionID()}, watchers(t, leader.ID()))
		require.Equal(t, 1, clientWatches(t, conn))
		require.Empty(t, watchers(t, follower.ID()))
	}
	require.Empty(t, watchers(t, node), "nobody watches the election node")
	require.NoError(t, grant.Err())
	leader.quiet(t, 0)
}

// watchers lists the sessions that watch a znode.
func watchers(t *testing.T, node string) (sessions []int64) {
	t.Helper()
	answer, err := shared.FourLetter(0, "wchp")
	require.NoError(t, err)
	at := ""
	for line := range strings.Lines(answer) {
		line = strings.TrimSuffix(line, "\n")
		session, ok := strings.CutPrefix(line, "\t")
		switch {
		case !ok:
			at = line
		case at == node:
			id, err := strconv.ParseInt(session, 0, 64)
			require.NoError(t, err)
			sessions = append(sessions, id)
		}
	}
	return sessions
}
