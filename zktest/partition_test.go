package zktest_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestPartition_CutOffClientReadsOldStateAndCannotWrite checks that a client that is cut off reads the state from
// before the partition, and that its write fails.
func TestPartition_CutOffClientReadsOldStateAndCannotWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		a, _ := connect(t, s, 6*time.Second)
		b, _ := connect(t, s, 6*time.Second)
		mustCreate(t, a, "/leader", "a", zk.FlagEphemeral)
		s.Partition(a.SessionID())
		_, _, gone, err := b.ExistsW("/leader")
		require.NoError(t, err)
		<-gone
		if ok, _, err := a.Exists("/leader"); !ok || err != nil || a.State() != zk.StateHasSession {
			t.Errorf("Exists of the client that is cut off returns %v, %v in state %v", ok, err, a.State())
		}
		mustCreate(t, b, "/leader", "b", zk.FlagEphemeral)
		if data, _, err := a.Get("/leader"); string(data) != "a" || err != nil {
			t.Errorf("the client that is cut off reads %q, error %v", data, err)
		}
		done := make(chan error)
		go func() {
			_, err := a.Set("/leader", []byte("mine"), -1)
			done <- err
		}()
		assert.Equal(t, zk.ErrConnectionClosed, <-done, "write of the client that is cut off")
		s.Heal()
		if data, _, err := b.Get("/leader"); string(data) != "b" || err != nil {
			t.Errorf("after Heal, the client reads %q, error %v", data, err)
		}
	})
}

// TestPartition_ClientOfFollowerReadsOldState checks that the client of a follower that is cut off reads old state
// without an error while its session expires, and receives the events that it has missed after Heal.
func TestPartition_ClientOfFollowerReadsOldState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.StartEnsemble(t, 3)
		a, events := connectFrom(t, e, 0, 6*time.Second)
		b, _ := connectFrom(t, e, 1, 6*time.Second)
		mustCreate(t, a, "/leader", "a", zk.FlagEphemeral)
		mustCreate(t, a, "/seen", "", 0)
		_, _, changed, err := a.GetW("/seen")
		require.NoError(t, err)
		_, _, gone, err := b.ExistsW("/leader")
		require.NoError(t, err)
		start := time.Now()
		e.Server(0).Partition()
		<-gone
		d := time.Since(start)
		assert.True(t, d >= 4*time.Second && d <= 7*time.Second, "expired after %v", d)
		mustCreate(t, b, "/leader", "b", zk.FlagEphemeral)
		time.Sleep(time.Minute)
		if data, _, err := a.Get("/leader"); string(data) != "a" || err != nil || a.State() != zk.StateHasSession {
			t.Errorf("the client of the follower reads %q, error %v, in state %v", data, err, a.State())
		}
		_, err = b.Set("/seen", nil, -1)
		require.NoError(t, err)
		// After Heal, the client must receive the events that it has missed, in order, and then the
		// expiry.
		e.Server(0).Heal()
		assert.Equal(t, zk.EventNodeDataChanged, (<-changed).Type, "event")
		waitState(t, events, zk.StateExpired)
	})
}

// TestPartition_StallsWriteUntilHeal checks that a write at a server that is cut off is not applied during the
// partition, and is applied after Heal.
func TestPartition_StallsWriteUntilHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.StartEnsemble(t, 3)
		a, _ := connectFrom(t, e, 0, 30*time.Second)
		e.Server(0).Partition()
		done := make(chan error, 1)
		go func() {
			_, err := a.Create("/late", nil, 0, openACL)
			done <- err
		}()
		time.Sleep(5 * time.Second)
		select {
		case err := <-done:
			t.Fatalf("a write without a quorum returns: %v", err)
		default:
		}
		e.Server(0).Heal()
		assert.NoError(t, <-done, "the write after Heal")
		assert.Contains(t, e.Tree(), "late", "the write was not applied")
	})
}

// TestHeal_SessionReadsNoStateThatServerLacks checks that a client whose own partition is healed does not read a
// state that its server, which is still cut off, does not have.
func TestHeal_SessionReadsNoStateThatServerLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.StartEnsemble(t, 3)
		a, _ := connectFrom(t, e, 0, 30*time.Second)
		b, _ := connectFrom(t, e, 1, 30*time.Second)
		requireChildren := func(want string) {
			t.Helper()
			kids, _, err := a.Children("/")
			slices.Sort(kids)
			got := strings.Join(kids, " ")
			assert.True(t, got == want && err == nil, "the client reads %s (%v), want %s", got, err, want)
		}
		_, _, x, err := a.ExistsW("/x")
		require.NoError(t, err)
		_, _, y, err := a.ExistsW("/y")
		require.NoError(t, err)
		s := e.Server(0)
		s.Partition(a.SessionID())
		mustCreate(t, b, "/x", "", 0)
		requireChildren("zookeeper")
		s.Partition()
		mustCreate(t, b, "/y", "", 0)
		s.Heal(a.SessionID())
		<-x
		requireChildren("x zookeeper")
		assert.Empty(t, y, "the client receives an event that its server has not seen")
		s.Heal()
		<-y
		requireChildren("x y zookeeper")

		// A separate partition of a connection must remain when the server resumes.
		s.Partition(a.SessionID())
		s.Pause()
		mustCreate(t, b, "/z", "", 0)
		s.Resume()
		requireChildren("x y zookeeper")
		s.Heal(a.SessionID())
		requireChildren("x y z zookeeper")
		mustCreate(t, a, "/mine", "", 0)
	})
}

// TestPartition_CutsOffSessionOfServerWithOtherFault checks that a session can be cut off from a server that lags,
// is paused or is cut off itself, and that the client receives the missed events after Heal.
func TestPartition_CutsOffSessionOfServerWithOtherFault(t *testing.T) {
	for name, fault := range map[string]struct{ begin, end func(*zktest.Server) }{
		"lag":       {(*zktest.Server).Lag, func(s *zktest.Server) {}},
		"lag by":    {func(s *zktest.Server) { s.LagBy(time.Second) }, func(s *zktest.Server) {}},
		"pause":     {(*zktest.Server).Pause, (*zktest.Server).Resume},
		"partition": {func(s *zktest.Server) { s.Partition() }, func(s *zktest.Server) {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := zktest.StartEnsemble(t, 3)
				s := e.Server(0)
				a, events := connectFrom(t, e, 0, 30*time.Second)
				b, _ := connectFrom(t, e, 1, 30*time.Second)
				_, _, x, err := a.ExistsW("/x")
				require.NoError(t, err)
				_, _, y, err := a.ExistsW("/y")
				require.NoError(t, err)
				fault.begin(s)
				mustCreate(t, b, "/x", "", 0)
				s.Partition(a.SessionID())
				mustCreate(t, b, "/y", "", 0)
				time.Sleep(5 * time.Second)
				fault.end(s)
				for _, path := range []string{"/x", "/y"} {
					assertExists(t, false, a, path, "read by the client that is cut off")
				}
				written := make(chan error, 1)
				go func() {
					_, err := a.Create("/mine", nil, 0, openACL)
					written <- err
				}()
				time.Sleep(5 * time.Second)
				if len(written) != 0 || len(x) != 0 || len(y) != 0 {
					t.Errorf("the client that is cut off receives replies to %d writes, and %d and %d events", len(written), len(x), len(y))
				}
				s.Heal()
				assert.NoError(t, <-written, "the write after Heal")
				<-x
				<-y
				for len(events) > 0 {
					ev := <-events
					assert.NotEqual(t, zk.StateDisconnected, ev.State, "the client was disconnected")
				}
			})
		})
	}
}

// TestHeal_ClosesConnectionOfExpiredSession checks that Heal closes the connection of a client whose session has
// expired while the client was cut off.
func TestHeal_ClosesConnectionOfExpiredSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, events, err := s.Connect(4 * time.Second)
		require.NoError(t, err)
		for c.State() != zk.StateHasSession {
			<-events
		}
		old := c.SessionID()
		s.Partition(old)
		require.NoError(t, s.ExpireSession(old))
		s.Partition()
		s.Heal(old)
		synctest.Wait()
		assert.False(t, c.State() == zk.StateHasSession && c.SessionID() == old, "the connection of an expired session is open")
	})
}
