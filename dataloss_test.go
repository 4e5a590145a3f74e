package leaderelection_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// dialed opens a connection with zkdial.
func dialed(t *testing.T, srv *zktest.Server) *zk.Conn {
	conn, _, err := zkdial.Connect([]string{srv.Name()}, 4*time.Second, zkdial.WithDialer(srv.Dialer()))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		time.Sleep(time.Second) // what waits for the connection notices
	})
	return conn
}

// standing is a candidate that takes part.
type standing struct {
	*leaderelection.Election
	ended chan error
}

func stand(t *testing.T, conn *zk.Conn, opts ...leaderelection.Option) *standing {
	e, err := leaderelection.NewElection(conn, "/app/election", opts...)
	require.NoError(t, err)
	c := &standing{e, make(chan error, 1)}
	go func() { c.ended <- e.ElectLeader() }()
	return c
}

func (c *standing) leads(t *testing.T, within time.Duration) *leaderelection.Leadership {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if l := c.Current().Leadership; l != nil && l.Err() == nil {
			return l
		}
	}
	require.FailNow(t, "does not lead", "%v", c.Current())
	return nil
}

func history(t *testing.T, conn *zk.Conn) {
	for range 20 {
		_, err := conn.Create("/n", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
}

func inBubble(t *testing.T, f func(*testing.T, *zktest.Server)) {
	synctest.Test(t, func(t *testing.T) { f(t, zktest.Start(t)) })
}

var forGood = []leaderelection.Option{leaderelection.WithCreateNode(), leaderelection.WithRejoin()}

// The servers return without their data. A candidate that rejoins, and creates the
// election node, leads again.
func TestServersReturnEmpty(t *testing.T) {
	for name, loss := range map[string]zktest.Loss{"rebuilt": zktest.LoseAll, "without the tree": zktest.LoseTree} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *zktest.Server) {
				conn := dialed(t, srv)
				c := stand(t, conn, forGood...)
				old := c.leads(t, time.Minute)
				history(t, conn)
				srv.Restart(loss)
				<-old.Done()
				time.Sleep(time.Second)
				c.leads(t, 10*time.Second)
				require.NoError(t, c.Resign())
				require.NoError(t, <-c.ended)
			})
		})
	}
}

// Two candidates, of which one creates the node anew: the other one continues in that one.
func TestServersReturnEmptyForSeveral(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *zktest.Server) {
		a := stand(t, dialed(t, srv), forGood...)
		a.leads(t, time.Minute)
		b := stand(t, dialed(t, srv), forGood...)
		time.Sleep(time.Second)
		srv.Restart(zktest.LoseTree)
		time.Sleep(20 * time.Second)
		leader, follower := a, b
		if b.Current().Role == leaderelection.Leader {
			leader, follower = b, a
		}
		leader.leads(t, time.Second)
		require.Equal(t, leader.ID(), follower.Current().NowFollowing)
		require.NoError(t, leader.Resign())
		follower.leads(t, time.Second)
		require.NoError(t, follower.Resign())
	})
}

// Other candidates end with an error that says what has happened.
func TestServersReturnEmptyEndsCandidates(t *testing.T) {
	for name, c := range map[string]struct {
		loss    zktest.Loss
		options []leaderelection.Option
		want    []error
		not     []error
	}{
		"rebuilt": {
			zktest.LoseAll, nil,
			[]error{leaderelection.ErrSessionExpired, leaderelection.ErrDataLost},
			[]error{leaderelection.ErrElectionOver},
		},
		"rebuilt, rejoins": {
			zktest.LoseAll,
			[]leaderelection.Option{leaderelection.WithRejoin()},
			[]error{leaderelection.ErrElectionGone},
			[]error{leaderelection.ErrElectionOver},
		},
		"without the tree": {
			zktest.LoseTree, nil,
			[]error{leaderelection.ErrSessionExpired},
			[]error{leaderelection.ErrElectionOver, leaderelection.ErrDataLost},
		},
		"without the tree, rejoins": {
			zktest.LoseTree,
			[]leaderelection.Option{leaderelection.WithRejoin()},
			[]error{leaderelection.ErrElectionGone},
			[]error{leaderelection.ErrElectionOver},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *zktest.Server) {
				conn := dialed(t, srv)
				for _, node := range []string{"/app", "/app/election"} {
					_, err := conn.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
					require.NoError(t, err)
				}
				history(t, conn)
				e := stand(t, conn, c.options...)
				e.leads(t, time.Minute)
				srv.Restart(c.loss)
				err := <-e.ended
				for _, want := range c.want {
					require.ErrorIs(t, err, want)
				}
				for _, not := range c.not {
					require.NotErrorIs(t, err, not)
				}
			})
		})
	}
}

// In the session in which the node was seen its absence still means that a client has
// deleted it, also for a candidate that could create it.
func TestNodeThatIsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *zktest.Server) {
		conn := dialed(t, srv)
		c := stand(t, conn, forGood...)
		c.leads(t, time.Minute)
		require.NoError(t, leaderelection.DeleteElection(conn, "/app/election"))
		require.ErrorIs(t, <-c.ended, leaderelection.ErrElectionOver)
	})
}

// A program that starts before its ZooKeeper waits for it, with WithRejoin.
func TestZooKeeperStartsLater(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *zktest.Server) {
		srv.Stop()
		conn := dialed(t, srv)
		begin := time.Now()
		_, err := leaderelection.NewElection(conn, "/app/election", leaderelection.WithCreateNode())
		require.ErrorIs(t, err, leaderelection.ErrUnreachable)
		c := stand(t, conn, forGood...)
		d := stand(t, conn, forGood...)
		require.Less(t, time.Since(begin), 15*time.Second)
		time.Sleep(time.Hour)
		require.Equal(t, leaderelection.Follower, c.Current().Role)
		require.NoError(t, d.Resign())
		require.NoError(t, <-d.ended)
		srv.Restart(zktest.KeepTree)
		c.leads(t, 10*time.Second)
		require.NoError(t, c.Resign())

		srv.Stop()
		time.Sleep(time.Minute)
		e := stand(t, conn, leaderelection.WithRejoin())
		srv.Restart(zktest.LoseTree)
		require.ErrorIs(t, <-e.ended, leaderelection.ErrNoElection)
	})
}
