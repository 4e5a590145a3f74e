package integrationtest

import (
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
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// Trap 32: the sequence number overflows to -2147483648, and an order by text
// puts that first. A real server gets there after 2^31 creates only; what can be
// shown is that such names are read rightly.
func TestTrap32_OverflowIsRead(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	want := []string{"2147483646", "2147483647", "-2147483648", "-2147483647", "-0999999999"}
	for i := len(want) - 1; i >= 0; i-- { // created in the wrong order on purpose
		_, err := conn.Create(path.Join(node, "_c_"+uuid()+"-latch-"+want[i]), []byte(want[i]), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	all, err := leaderelection.Candidates(conn.Conn, node)
	require.NoError(t, err)
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	require.Equal(t, want, names)
	leader, found, err := leaderelection.CurrentLeader(conn.Conn, node)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, want[0], leader.Name)
}

// Trap 34: foreign children break the sorting or the parsing, or are taken for
// predecessors.
func TestTrap34_ForeignChildren(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connect(t)
	node := newNode(t, admin)
	foreign := []string{
		"a", "_c_x", "_c_", "latch-", "lock-", "DONE-", "0000000000", "-0000000000", "x-0000000000",
		"_c_" + uuid() + "-latch-", "_c_" + uuid() + "-latch-00000000x0", "_c_" + uuid() + "-latch-9999999999",
		"_c_" + uuid() + "-other-0000000000", "__lock__", "le_", "ünïcode-0000000000",
	}
	for _, name := range foreign {
		_, err := admin.Create(path.Join(node, name), nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err, name)
	}
	c, _ := lead(t, conn, node)
	next := follow(t, admin, node, c)
	all, err := leaderelection.Candidates(conn.Conn, node)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, c.ID(), all[0].ID)
	require.ErrorIs(t, c.EndElection(), leaderelection.ErrForeignChildren)
	for _, name := range foreign {
		remove(t, admin, path.Join(node, name))
	}
	next.quiet(t, 0)
	c.resign(t)
	next.leads(t)
}

// Trap 35: the election node is created anew, the sequence begins at 0 again,
// and as a fencing token it would go back.
func TestTrap35_SequenceRestarts(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	for range 3 {
		contender(t, conn, node)
	}
	old := enlist(t, conn, node)
	old.next(t)
	oldToken := statOf(t, conn, old.ID()).Czxid
	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	old.ends(t, leaderelection.ErrElectionOver)

	_, err := conn.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	c, l := lead(t, conn, node)
	sequence := func(id string) string { return id[len(id)-10:] }
	require.Less(t, sequence(c.ID()), sequence(old.ID()))
	require.Greater(t, l.Token(), oldToken)
}

// Trap 38: two resets at once make two znodes, or two leaders, or leave one
// behind.
func TestTrap38_EverythingAtOnce(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectWays(t, shortTimeout)
	for round := range 5 {
		node := newNode(t, admin)
		c := newCandidate(t, conn, node, leaderelection.WithRejoin())
		// It is started many times over while its connection flaps.
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
		conn.link.drop()
		for s := c.next(t); s.Role != leaderelection.Leader; s = c.next(t) {
			require.NoError(t, s.Err)
		}
		onlyChild(t, admin, node, c, conn)
		for i := range 10 {
			calls.Go(func() {
				if i == round {
					conn.link.drop()
				}
				_ = c.Resign()
			})
		}
		calls.Wait()
		require.Equal(t, 1, started)
		electiontest.Confirm(t, c.Resign)
		require.Empty(t, children(t, admin, node))
		goesOn(t, conn)
	}
}

// Trap 39: a missing predecessor makes a candidate create itself anew, which
// makes the next one do so, and so on for ever.
func TestTrap39_NoCreateStorm(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectWays(t, shortTimeout)
	node := newNode(t, admin)
	const count = 30
	var all []*candidate
	for range count {
		c := enlist(t, conn, node, leaderelection.WithRejoin())
		c.next(t)
		all = append(all, c)
	}
	require.Equal(t, count, creates(t, admin, node))

	// Every second one goes, at once, some while the connection is down.
	for i := 0; i < count; i += 2 {
		if i == count/2+1 {
			conn.link.cut()
		}
		remove(t, admin, all[i].ID())
	}
	conn.link.restore()
	for i := 0; i < count; i += 2 {
		for range all[i].rest(t) { // what it was told before the end
		}
		require.ErrorIs(t, all[i].result(t), leaderelection.ErrCandidateDeleted)
	}
	eventually(t, func() bool { return all[1].Current().Role == leaderelection.Leader }, "the first that is left leads")
	for i := 3; i < count; i += 2 {
		eventually(t, func() bool { return all[i].Current().NowFollowing == all[i-2].ID() }, "each follows the one before")
	}
	require.Equal(t, count, creates(t, admin, node), "nobody was created anew")
	require.Len(t, children(t, admin, node), count/2)
}

// Trap 41: an error ends the loop in silence, and the process never leads again.
func TestTrap41_ErrorsAreTold(t *testing.T) {
	t.Parallel()
	without := func(perm int32) []zk.ACL { return zk.WorldACL(zk.PermAll &^ perm) }
	for _, c := range []struct {
		name string
		acl  []zk.ACL // of the election node, from the moment of the start
		own  []zk.ACL // of the candidate's znode
	}{
		{"may not create", without(zk.PermCreate), nil},
		{"may not list", without(zk.PermRead), nil},
		{"may not read its own", nil, without(zk.PermRead)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			admin, conn := connect(t), connect(t)
			node := newNode(t, admin)
			opts := []leaderelection.Option{leaderelection.WithRejoin()}
			if c.own != nil {
				opts = append(opts, leaderelection.WithACL(c.own))
			}
			e := newCandidate(t, conn, node, opts...)
			if c.acl != nil {
				_, err := admin.SetACL(node, c.acl, -1)
				require.NoError(t, err)
			}
			e.start()
			e.ends(t, leaderelection.ErrPermission)
			require.Zero(t, statOf(t, admin, node).NumChildren, "something was left behind")
		})
	}
	t.Run("may not read the predecessor", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connect(t)
		node := newNode(t, admin)
		_, err := admin.Create(node+"/_c_"+uuid()+"-latch-", nil, zk.FlagEphemeral|zk.FlagSequence, without(zk.PermRead))
		require.NoError(t, err)
		e := newCandidate(t, conn, node)
		e.start()
		e.ends(t, leaderelection.ErrPermission)
		require.Len(t, children(t, admin, node), 1)
	})
	t.Run("passes by itself", func(t *testing.T) {
		t.Parallel()
		// Whatever request the link breaks at, before it or before its reply,
		// the candidate goes on.
		for _, cut := range cuts[:2] {
			for k := 1; k <= 4; k++ {
				admin, conn := connect(t), connectWays(t, shortTimeout)
				node := newNode(t, admin)
				ahead := contender(t, admin, node)
				var rules []*zkproxy.Handle
				for _, p := range conn.link {
					rules = append(rules, p.On(zkproxy.Rule{
						K: k, Action: cut.action,
						Path: func(path string) bool { return path == node || under(node)(path) },
					}))
				}
				c := newCandidate(t, conn, node)
				c.start()
				require.Equal(t, ahead, c.next(t).NowFollowing, "%s, request %d", cut.name, k)
				remove(t, admin, ahead)
				c.leads(t)
				for _, r := range rules {
					r.Release() // what has not met its request
				}
				electiontest.Confirm(t, c.Resign)
				require.Empty(t, children(t, admin, node))
			}
		}
	})
}

// Trap 42: the next term begins while the last one has not ended.
func TestTrap42_TermsDoNotOverlap(t *testing.T) {
	t.Parallel()
	t.Run("attentive reader", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connectWays(t, shortTimeout)
		node := newNode(t, admin)
		c, l := lead(t, conn, node)
		for range 2 {
			conn.link.freeze()
			await(t, l.Done(), "the end of the lease")
			require.Equal(t, leaderelection.Suspended, c.next(t).Role)
			conn.link.restore()
			again := c.leads(t)
			require.NotSame(t, l, again)
			require.Equal(t, l.Token(), again.Token())
			require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
			l = again
		}
	})
	t.Run("late reader", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connectWays(t, shortTimeout)
		node := newNode(t, admin)
		c, l := lead(t, conn, node)
		conn.link.freeze()
		await(t, l.Done(), "the end of the lease")
		conn.link.restore()
		eventually(t, func() bool { return c.Current().Role == leaderelection.Leader }, "proven again")
		require.Equal(t, leaderelection.Suspended, c.next(t).Role, "the end comes before the new beginning")
		require.Equal(t, l.Token(), c.leads(t).Token())
	})
	t.Run("new session", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connectWays(t, shortTimeout)
		node := newNode(t, admin)
		c, l := lead(t, conn, node, leaderelection.WithRejoin())
		expire(t, conn)
		conn.link.restore()
		eventually(t, func() bool { return c.Current().Role == leaderelection.Leader && c.Current().Leadership != l }, "leads again")
		require.Error(t, l.Err())
		s := c.next(t)
		require.NotEqual(t, leaderelection.Leader, s.Role, "the end comes before the new beginning")
		for s.Role != leaderelection.Leader {
			s = c.next(t)
		}
		require.Greater(t, s.Leadership.Token(), l.Token())
	})
}

// Trap 43: the leader vanishes between the listing and the look at it.
func TestTrap43_LeaderVanishes(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
	for _, followers := range []int{0, 1} {
		t.Run(fmt.Sprint(followers, " followers"), func(t *testing.T) {
			node := newNode(t, admin)
			isNode := func(path string) bool { return path == node }
			var want string
			vanish := func() {
				leader := contender(t, admin, node)
				for range followers {
					want = contender(t, admin, node)
				}
				rule := conn.link[0].On(zkproxy.Rule{Op: zkproxy.OpGetChildren2, Path: isNode, Action: zkproxy.HoldReply})
				go func() {
					<-rule.Done()
					_ = admin.Delete(leader, -1)
					rule.Release()
				}()
			}
			vanish()
			leader, found, err := leaderelection.CurrentLeader(conn.Conn, node)
			require.NoError(t, err)
			require.Equal(t, followers > 0, found)
			require.Equal(t, want, leader.ID)
			if found {
				remove(t, admin, want)
			}

			vanish()
			all, err := leaderelection.Candidates(conn.Conn, node)
			require.NoError(t, err)
			require.Len(t, all, followers)
		})
	}

	// Nobody is reported twice, or with another one's token, while leaders
	// come and go.
	node := newNode(t, admin)
	stop := make(chan struct{})
	changes := inBackground(t, func() error {
		for {
			select {
			case <-stop:
				return nil
			default:
			}
			path, err := admin.Create(node+"/_c_"+uuid()+"-latch-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			if err == nil {
				err = admin.Delete(path, -1)
			}
			if err != nil {
				return err
			}
		}
	})
	last := int64(0)
	for end := time.Now().Add(calm); time.Now().Before(end); {
		leader, found, err := leaderelection.CurrentLeader(conn.Conn, node)
		require.NoError(t, err)
		require.Equal(t, found, leader.Token != 0)
		if found {
			require.GreaterOrEqual(t, leader.Token, last)
			last = leader.Token
		}
	}
	close(stop)
	require.NoError(t, await(t, changes, "the end"))
}
