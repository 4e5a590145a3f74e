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

const session = 4 * time.Second

// program is a client of the server, whose network can be cut.
type program struct {
	srv  *zktest.Server
	conn *zk.Conn

	mu  sync.Mutex
	cut bool
}

func (p *program) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return nil, errors.New("cut off")
	}
	return p.srv.Dialer()(network, address, timeout)
}

func (p *program) sever(on bool) {
	p.mu.Lock()
	p.cut = on
	p.mu.Unlock()
	if id := p.conn.SessionID(); on {
		p.srv.Blackhole(zktest.BothWays, id)
	} else {
		p.srv.Heal(id)
	}
}

// zookeeper makes elections on the embedded server.
func zookeeper(opts ...leaderelection.Option) electiontest.Factory {
	return func(t electiontest.TB) *electiontest.Group {
		srv := zktest.Start(t)
		var mu sync.Mutex
		clients := map[int]*program{}
		client := func(i int) (*program, error) {
			mu.Lock()
			defer mu.Unlock()
			if p := clients[i]; p != nil {
				return p, nil
			}
			p := &program{srv: srv}
			conn, _, err := srv.Connect(session, zk.WithDialer(p.dial))
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
			p.sever(true)
			return func() { p.sever(false) }
		}
		t.Cleanup(func() { // no request is to be under way when a client is closed
			for i := range clients {
				clients[i].sever(false)
			}
			time.Sleep(time.Minute)
		})
		return &electiontest.Group{
			New: func(i int) (leaderelection.Candidate, error) {
				p, err := client(i)
				if err != nil {
					return nil, err
				}
				all := append([]leaderelection.Option{
					leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(session),
				}, opts...)
				return leaderelection.NewElection(p.conn, "/election", all...)
			},
			Crash: func(i int) { cut(i) },
			Cut:   cut,
		}
	}
}

func TestZooKeeper(t *testing.T) {
	electiontest.Run(t, zookeeper(), electiontest.FakeTime())
}

func TestZooKeeperWithRejoin(t *testing.T) {
	electiontest.Run(t, zookeeper(leaderelection.WithRejoin()), electiontest.FakeTime())
}

func TestZooKeeperWithPlainNames(t *testing.T) {
	electiontest.Run(t, zookeeper(leaderelection.WithNaming(leaderelection.Prefix("n_"))), electiontest.FakeTime())
}

func TestZooKeeperWithKazoosNames(t *testing.T) {
	electiontest.Run(t, zookeeper(leaderelection.WithNaming(leaderelection.Kazoo)), electiontest.FakeTime())
}
