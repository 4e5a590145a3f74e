package electiontest_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const sessionTimeout = 4 * time.Second

// zookeeperFactory returns a factory of elections on the embedded server. plain must be true if the names of
// the candidates contain no GUID. Such candidates do not watch the candidate before their predecessor, so they need
// not notice immediately that they are next.
func zookeeperFactory(plain bool, opts ...leaderelection.Option) electiontest.Factory {
	return func(t electiontest.TB) *electiontest.Group {
		srv := zktest.Start(t)
		var mu sync.Mutex
		clients := map[int]*bubble.Client{}
		client := func(i int) (*bubble.Client, error) {
			mu.Lock()
			defer mu.Unlock()
			if p := clients[i]; p != nil {
				return p, nil
			}
			p, err := bubble.NewClient(srv, sessionTimeout)
			if err == nil {
				clients[i] = p
			}
			return p, err
		}
		cut := func(i int) func() {
			p, err := client(i)
			if err != nil {
				t.Errorf("client %d: %v", i, err)
				return func() {}
			}
			p.SetCut(true)
			return func() { p.SetCut(false) }
		}
		t.Cleanup(func() { // wait, because no request may be in flight when a client is closed
			for i := range clients {
				clients[i].SetCut(false)
			}
			time.Sleep(time.Minute)
		})
		return &electiontest.Group{
			New: func(i int) (leaderelection.Candidate, error) {
				p, err := client(i)
				if err != nil {
					return nil, err
				}
				// Create the node here: with WithCreateNode, a candidate that joins after EndElection would create
				// the election again.
				_, err = p.Conn.Create("/election", nil, 0, zk.WorldACL(zk.PermAll))
				if err != nil && !errors.Is(err, zk.ErrNodeExists) {
					return nil, err
				}
				all := append([]leaderelection.Option{leaderelection.WithSessionTimeout(sessionTimeout)}, opts...)
				return leaderelection.NewElection(p.Conn, "/election", all...)
			},
			Crash:   func(i int) { cut(i) },
			Cut:     cut,
			InOrder: !plain,
		}
	}
}

// TestRun_AcceptsZooKeeperElection checks that an Election behaves as the interface Candidate requires.
func TestRun_AcceptsZooKeeperElection(t *testing.T) {
	electiontest.Run(t, zookeeperFactory(false), electiontest.WithFakeTime())
}

// TestRun_AcceptsZooKeeperElectionWithRejoin checks that an Election with WithRejoin behaves as the interface
// Candidate requires.
func TestRun_AcceptsZooKeeperElectionWithRejoin(t *testing.T) {
	electiontest.Run(t, zookeeperFactory(false, leaderelection.WithRejoin()), electiontest.WithFakeTime())
}

// TestRun_AcceptsZooKeeperElectionWithPlainNames checks that an Election whose names have no GUID behaves as
// the interface Candidate requires.
func TestRun_AcceptsZooKeeperElectionWithPlainNames(t *testing.T) {
	electiontest.Run(t, zookeeperFactory(true, leaderelection.WithNamePrefix("n_")), electiontest.WithFakeTime())
}

// TestRun_AcceptsZooKeeperElectionWithKazooNames checks that an Election with kazoo's names behaves as the
// interface Candidate requires.
func TestRun_AcceptsZooKeeperElectionWithKazooNames(t *testing.T) {
	electiontest.Run(t, zookeeperFactory(false, leaderelection.WithKazooNames()), electiontest.WithFakeTime())
}
