package zktest_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestEnsemble_RecoversFromRandomFaults checks that, after random faults have ended, the servers have equal trees,
// each ephemeral znode has a session, and each client can write.
func TestEnsemble_RecoversFromRandomFaults(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) { runRandomFaults(t, seed) })
	}
}

func runRandomFaults(t *testing.T, seed uint64) {
	const clients, faults = 6, 60
	r := rand.New(rand.NewPCG(seed, 7))
	e := zktest.StartEnsemble(t, 3)
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
				// An error here is the effect of a fault.
				p, err := c.Create("/jobs/n-", []byte{byte(i)}, zk.FlagEphemeral|zk.FlagSequence, openACL)
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
		_, err := c.Create(fmt.Sprintf("/after-%d", i), nil, 0, openACL)
		assert.NoError(t, err, "seed %d: client %d cannot write", seed, i)
	}
	alive := make(map[int64]bool)
	for _, x := range e.Server(0).Sessions() {
		alive[x.ID] = true
	}
	assert.Len(t, alive, clients, "seed %d: %d sessions", seed, len(alive))
	kids, _, err := conns[0].Children("/jobs")
	require.NoError(t, err)
	for _, k := range kids {
		if _, stat, err := conns[0].Exists("/jobs/" + k); err != nil || !alive[stat.EphemeralOwner] {
			t.Errorf("seed %d: %s cannot be read, or belongs to session 0x%x, which does not exist: %v", seed, k, stat.EphemeralOwner, err)
		}
	}
	for i := range 3 {
		assert.Equal(t, e.Tree(), e.Server(i).Tree())
	}
}
