package zktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestClose_ReturnsDuringFault checks that Close does not wait until a fault is over.
func TestClose_ReturnsDuringFault(t *testing.T) {
	for name, fault := range map[string]func(*zktest.Server){
		"paused":     (*zktest.Server).Pause,
		"partition":  func(s *zktest.Server) { s.Partition() },
		"stopped":    (*zktest.Server).Stop,
		"black hole": func(s *zktest.Server) { s.Blackhole(zktest.BothWays) },
		"delay":      func(s *zktest.Server) { s.Delay(zktest.BothWays, time.Hour) },
		"refuse":     func(s *zktest.Server) { s.Refuse(true); s.DropConnections() },
	} {
		synctest.Test(t, func(t *testing.T) {
			s, err := zktest.NewServer()
			require.NoError(t, err)
			c, _ := connect(t, s, 10*time.Second)
			fault(s)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = c.Create("/a", nil, 0, openACL)
			}()
			time.Sleep(time.Second)
			start := time.Now()
			s.Close()
			<-done
			d := time.Since(start)
			assert.LessOrEqual(t, d, 3*time.Second, "%s: Close took %v", name, d)
		})
	}
}

// TestClose_KeepsState checks that no method changes the state of a server after Close.
func TestClose_KeepsState(t *testing.T) {
	s := zktest.Start(t)
	c, _ := connect(t, s, 10*time.Second)
	mustCreate(t, c, "/a", "x", 0)
	_, err := c.CreateContainer("/box", nil, zk.FlagContainer, openACL)
	require.NoError(t, err)
	mustCreate(t, c, "/box/a", "", 0)
	require.NoError(t, c.Delete("/box/a", -1))
	s.Close()
	before, zxid := s.Tree(), s.Zxid()
	for _, f := range []func(){
		func() { s.Restart(zktest.LoseAll) },
		s.Pause, s.Resume, s.Stop, s.Close,
		func() { s.Partition() },
		func() { s.Blackhole(zktest.BothWays) },
		func() { s.Heal() },
		func() { s.Refuse(true) },
		func() { s.Refuse(false) },
		func() { s.Sweep() },
		func() { s.DropConnections() },
		func() { _ = s.SetSequence("/a", 7) },
	} {
		f()
	}
	assert.True(t, s.Tree() == before && s.Zxid() == zxid && len(s.Log()) != 0, "after Close, a method has changed the state: the tree is\n%s, and was\n%s", s.Tree(), before)
	assert.ErrorIs(t, s.ExpireSession(1), zktest.ErrNoSession)
}
