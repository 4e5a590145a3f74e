package zktest_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestStress lets clients work while faults of all kinds come and go. When they
// are healed the servers agree, nodes have owners, and everybody can work.
func TestStress(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) { stress(t, seed) })
	}
}

func stress(t *testing.T, seed uint64) {
	const clients, faults = 6, 60
	r := rand.New(rand.NewPCG(seed, 7))
	e := zktest.Cluster(t, 3)
	conns := make([]*zk.Conn, clients)
	for i := range conns {
		conns[i], _ = connectFrom(t, e, i, 6*time.Second)
	}
	mustCreate(t, conns[0], "/jobs", "", 0)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				case <-time.After(200 * time.Millisecond):
				}
				// Errors are what the faults are for.
				p, err := c.Create("/jobs/n-", []byte{byte(i)}, zk.FlagEphemeral|zk.FlagSequence, open)
				_, _, _ = c.Children("/jobs")
				if err == nil && n%8 != 0 {
					_ = c.Delete(p, -1)
				}
				_, _ = c.Multi(&zk.SetDataRequest{Path: "/jobs", Version: -1}, &zk.CheckVersionRequest{Path: p, Version: 0})
			}
		})
	}
	for range faults {
		s := e.Server(r.IntN(3))
		switch r.IntN(12) {
		case 0:
			s.Partition()
		case 1, 2:
			s.Heal()
		case 3:
			s.DropConnections()
		case 4:
			s.Blackhole(zktest.Direction(1 + r.IntN(3)))
		case 5:
			s.Stop()
		case 6, 7:
			s.Restart(zktest.KeepTree)
		case 8:
			s.Pause()
		case 9:
			s.Resume()
		case 10:
			if all := s.Sessions(); len(all) > 0 {
				_ = s.ExpireSession(all[r.IntN(len(all))].ID)
			}
		default:
			s.Delay(zktest.BothWays, time.Duration(r.IntN(100))*time.Millisecond)
			s.After(zktest.Match{Nth: 1 + r.IntN(5)}, zktest.Cut)
		}
		time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
	}
	for i := range 3 {
		e.Server(i).Heal()
		e.Server(i).Restart(zktest.KeepTree)
	}
	close(done)
	time.Sleep(time.Minute)
	wg.Wait()
	for i, c := range conns {
		if _, err := c.Create(fmt.Sprintf("/after-%d", i), nil, 0, open); err != nil {
			t.Errorf("seed %d: client %d cannot work: %v", seed, i, err)
		}
	}
	alive := make(map[int64]bool)
	for _, x := range e.Server(0).Sessions() {
		alive[x.ID] = true
	}
	if len(alive) != clients {
		t.Errorf("seed %d: %d sessions", seed, len(alive))
	}
	kids, _, err := conns[0].Children("/jobs")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kids {
		if _, stat, err := conns[0].Exists("/jobs/" + k); err != nil || !alive[stat.EphemeralOwner] {
			t.Errorf("seed %d: %s belongs to 0x%x: %v", seed, k, stat.EphemeralOwner, err)
		}
	}
	for i := range 3 {
		if got := e.Server(i).Tree(); got != e.Tree() {
			t.Errorf("seed %d: server %d differs:\n%s", seed, i, got)
		}
	}
}

// Close ends at once, whatever the state of things.
func TestCloseInAnyState(t *testing.T) {
	for name, fault := range map[string]func(*zktest.Server){
		"paused":     (*zktest.Server).Pause,
		"partition":  func(s *zktest.Server) { s.Partition() },
		"stopped":    (*zktest.Server).Stop,
		"black hole": func(s *zktest.Server) { s.Blackhole(zktest.BothWays) },
		"delay":      func(s *zktest.Server) { s.Delay(zktest.BothWays, time.Hour) },
		"refuse":     func(s *zktest.Server) { s.Refuse(true); s.DropConnections() },
	} {
		synctest.Test(t, func(t *testing.T) {
			s, err := zktest.New()
			if err != nil {
				t.Fatal(err)
			}
			c, _ := connect(t, s, 10*time.Second)
			fault(s)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = c.Create("/a", nil, 0, open)
			}()
			time.Sleep(time.Second)
			start := time.Now()
			s.Close()
			<-done
			if d := time.Since(start); d > 3*time.Second {
				t.Errorf("%s: Close took %v", name, d)
			}
		})
	}
}

// A hook may keep the answer to the end of a session, too.
func TestHookOnCloseSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 10*time.Second)
		mustCreate(t, c, "/e", "", zk.FlagEphemeral)
		h := s.After(zktest.Match{Op: zktest.OpCloseSession, Nth: 1}, func(*zktest.Request) zktest.Verdict {
			time.Sleep(100 * time.Millisecond)
			return zktest.Verdict{}
		})
		start := time.Now()
		c.Close()
		<-h.Ran()
		if d := time.Since(start); d != 100*time.Millisecond {
			t.Errorf("Close took %v", d)
		}
		if n := len(s.Sessions()); n != 0 {
			t.Errorf("%d sessions", n)
		}
		if n := s.Log().Count(zktest.OpCloseSession); n != 1 {
			t.Errorf("%d entries for the end of one session", n)
		}
	})
}
