package electiontest_test

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const sessionTimeout = 4 * time.Second

// client is a client of the server. Its network can be cut.
type client struct {
	srv  *zktest.Server
	conn *zk.Conn

	mu  sync.Mutex
	cut bool
}

func (p *client) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return nil, errors.New("cut off")
	}
	return p.srv.Dialer()(network, address, timeout)
}

func (p *client) setCut(on bool) {
	p.mu.Lock()
	p.cut = on
	p.mu.Unlock()
	if id := p.conn.SessionID(); on {
		p.srv.Blackhole(zktest.BothWays, id)
	} else {
		p.srv.Heal(id)
	}
}

// zookeeperFactory returns a factory of elections on the embedded server.
func zookeeperFactory(opts ...leaderelection.Option) electiontest.Factory {
	return func(t electiontest.TB) *electiontest.Group {
		srv := zktest.Start(t)
		var mu sync.Mutex
		clients := map[int]*client{}
		client := func(i int) (*client, error) {
			mu.Lock()
			defer mu.Unlock()
			if p := clients[i]; p != nil {
				return p, nil
			}
			p := &client{srv: srv}
			conn, _, err := srv.Connect(sessionTimeout, zk.WithDialer(p.dial))
			if err != nil {
				return nil, err
			}
			p.conn, clients[i] = conn, p
			return p, nil
		}
		cut := func(i int) func() {
			p, err := client(i)
			if err != nil {
				t.Errorf("client %d: %v", i, err)
				return func() {}
			}
			p.setCut(true)
			return func() { p.setCut(false) }
		}
		t.Cleanup(func() { // no request must be in flight when a client is closed
			for i := range clients {
				clients[i].setCut(false)
			}
			time.Sleep(time.Minute)
		})
		return &electiontest.Group{
			New: func(i int) (leaderelection.Candidate, error) {
				p, err := client(i)
				if err != nil {
					return nil, err
				}
				// With WithCreateNode, a candidate that joins after the end would create an election.
				_, err = p.conn.Create("/election", nil, 0, zk.WorldACL(zk.PermAll))
				if err != nil && !errors.Is(err, zk.ErrNodeExists) {
					return nil, err
				}
				all := append([]leaderelection.Option{leaderelection.WithSessionTimeout(sessionTimeout)}, opts...)
				return leaderelection.NewElection(p.conn, "/election", all...)
			},
			Crash: func(i int) { cut(i) },
			Cut:   cut,
		}
	}
}

func TestRun_ZooKeeper(t *testing.T) {
	electiontest.Run(t, zookeeperFactory(), electiontest.WithFakeTime())
}

func TestRun_ZooKeeperWithRejoin(t *testing.T) {
	electiontest.Run(t, zookeeperFactory(leaderelection.WithRejoin()), electiontest.WithFakeTime())
}

func TestRun_ZooKeeperWithPlainNames(t *testing.T) {
	electiontest.Run(t, zookeeperFactory(leaderelection.WithNamePrefix("n_")), electiontest.WithFakeTime())
}

func TestRun_ZooKeeperWithKazooNames(t *testing.T) {
	electiontest.Run(t, zookeeperFactory(leaderelection.WithKazooNames()), electiontest.WithFakeTime())
}
