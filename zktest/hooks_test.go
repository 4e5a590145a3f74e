package zktest_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestHook_Match fails if a hook runs for a request that does not match, or more often than once with
// Nth.
func TestHook_Match(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		a, _ := connect(t, s, 10*time.Second)
		b, _ := connect(t, s, 10*time.Second)
		var got []string
		note := func(q *zktest.Request) zktest.Verdict {
			got = append(got, fmt.Sprintf("%v %s %s %s", q.Op, q.Path, q.Created, q.Code.String()))
			return zktest.Verdict{}
		}
		s.After(zktest.Match{Path: "/a*", Session: a.SessionID()}, note)
		mustCreate(t, a, "/a", "", zk.FlagSequence)
		mustCreate(t, b, "/a", "", 0)
		if _, err := a.Multi(&zk.CreateRequest{Path: "/b", Acl: open}, &zk.CheckVersionRequest{Path: "/a", Version: 7}); err != zk.ErrBadVersion {
			t.Error(err)
		}
		mustCreate(t, a, "/c", "", 0)
		want := []string{"create /a /a0000000000 ok", "multi /b  bad version"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("hooks ran for %q, not %q", got, want)
		}
		n := 0
		h := s.Before(zktest.Match{Op: zktest.OpExists, Nth: 3}, func(*zktest.Request) zktest.Verdict {
			n++
			return zktest.Verdict{}
		})
		for range 6 {
			if _, _, err := a.Exists("/a"); err != nil {
				t.Error(err)
			}
		}
		<-h.Ran()
		if n != 1 {
			t.Errorf("a hook for the third request ran %d times", n)
		}
		removed := s.Before(zktest.Match{}, zktest.Cut)
		removed.Remove()
		if _, _, err := a.Exists("/a"); err != nil {
			t.Error(err)
		}
	})
}

// TestHook_ChangesServer fails if a hook cannot change the server, or if the client receives the
// event of that change before the reply.
func TestHook_ChangesServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		a, _ := connect(t, s, 10*time.Second)
		b, _ := connect(t, s, 10*time.Second)
		mustCreate(t, b, "/e", "", zk.FlagEphemeral)
		s.After(zktest.Match{Op: zktest.OpGetData, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			if q.Session != a.SessionID() || q.Server != s {
				t.Errorf("request %+v", q)
			}
			if err := s.ExpireSession(b.SessionID()); err != nil {
				t.Error(err)
			}
			return zktest.Verdict{}
		})
		data, _, ch, err := a.GetW("/e")
		if err != nil {
			t.Fatalf("%q %v", data, err)
		}
		if ev := <-ch; ev.Type != zk.EventNodeDeleted {
			t.Errorf("event %+v", ev)
		}
	})
}

// TestHook_FailClientErrors fails if a client receives another error than the one that was passed to
// Fail.
func TestHook_FailClientErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 10*time.Second)
		for _, want := range []error{
			zk.ErrAPIError, zk.ErrNoNode, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrNoChildrenForEphemerals, zk.ErrNodeExists,
			zk.ErrNotEmpty, zk.ErrSessionExpired, zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrClosing, zk.ErrNothing,
			zk.ErrSessionMoved, zk.ErrReconfigDisabled, zk.ErrBadArguments,
		} {
			s.Before(zktest.Match{Op: zktest.OpGetData, Nth: 1}, zktest.Fail(want))
			if _, _, err := c.Get("/"); err != want {
				t.Errorf("the client received %q, not %q", err, want)
			}
		}
	})
}

// TestHook_Goexit fails if the connection stays open, or the server is damaged, when a hook ends its
// goroutine, or if Ran is not closed.
func TestHook_Goexit(t *testing.T) {
	exit := func(*zktest.Request) zktest.Verdict {
		runtime.Goexit()
		return zktest.Verdict{}
	}
	type set func(*zktest.Server, zktest.Match, zktest.HookFunc) *zktest.Hook
	for stage, set := range map[string]set{"before": (*zktest.Server).Before, "after": (*zktest.Server).After} {
		t.Run(stage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := zktest.Start(t)
				h := set(s, zktest.Match{Op: zktest.OpConnect, Nth: 1}, exit)
				c, _ := connect(t, s, 10*time.Second)
				<-h.Ran()
				h = set(s, zktest.Match{Op: zktest.OpCreate, Nth: 1}, exit)
				if _, err := c.Create("/a", nil, 0, open); err != zk.ErrConnectionClosed {
					t.Errorf("the client received %v", err)
				}
				<-h.Ran()
				if _, _, err := c.Exists("/a"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestHook_Fail fails if the client does not receive the error of the hook, or the log has a wrong
// fate.
func TestHook_Fail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, events := connect(t, s, 10*time.Second)
		s.After(zktest.Match{Op: zktest.OpCreate, Nth: 1}, zktest.Fail(zk.ErrNodeExists))
		if _, err := c.Create("/a", nil, 0, open); err != zk.ErrNodeExists {
			t.Error(err)
		}
		if ok, _, err := c.Exists("/a"); !ok || err != nil {
			t.Errorf("the create was not applied: %v %v", ok, err)
		}
		s.Before(zktest.Match{Op: zktest.OpDelete, Nth: 1}, zktest.Fail(zktest.Code(-127)))
		if err := c.Delete("/a", -1); err == nil || err.Error() != "unknown error: -127" {
			t.Error(err)
		}
		s.Before(zktest.Match{Op: zktest.OpSync, Nth: 1}, zktest.Fail(zk.ErrSessionExpired))
		if _, err := c.Sync("/a"); err != zk.ErrSessionExpired {
			t.Error(err)
		}
		id := c.SessionID()
		s.After(zktest.Match{Op: zktest.OpConnect, Nth: 1}, zktest.Cut)
		s.DropConnections()
		waitState(t, events, zk.StateHasSession)
		if c.SessionID() != id {
			t.Error("the session has changed")
		}
		log := s.Log()
		fates := map[zktest.Fate]int{}
		for _, x := range log {
			fates[x.Fate]++
		}
		if fates[zktest.Failed] != 3 || fates[zktest.CutAfter] != 1 {
			t.Errorf("unexpected log:\n%v", log)
		}
	})
}

// TestHook_Blocks fails if a hook that blocks delays another client.
func TestHook_Blocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		a, _ := connect(t, s, 30*time.Second)
		b, _ := connect(t, s, 30*time.Second)
		release := make(chan struct{})
		s.Before(zktest.Match{Op: zktest.OpCreate, Session: a.SessionID(), Nth: 1}, func(*zktest.Request) zktest.Verdict {
			<-release
			return zktest.Verdict{}
		})
		done := make(chan error, 1)
		go func() {
			_, err := a.Create("/a", []byte("a"), 0, open)
			done <- err
		}()
		synctest.Wait()
		mustCreate(t, b, "/a", "b", 0)
		close(release)
		if err := <-done; err != zk.ErrNodeExists {
			t.Errorf("create after the hook: %v", err)
		}
	})
}

// TestHook_Cut fails if a request is applied although a Before hook cuts the connection, or is not
// applied before an After hook does.
func TestHook_Cut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, events := connect(t, s, 10*time.Second)
		mustCreate(t, c, "/first", "", 0)
		h := s.After(zktest.Match{Op: zktest.OpCreate, Nth: 2}, zktest.Cut)
		mustCreate(t, c, "/second", "", 0)
		if _, err := c.Create("/third", nil, 0, open); err != zk.ErrConnectionClosed {
			t.Errorf("create with a lost reply: %v", err)
		}
		<-h.Ran()
		waitState(t, events, zk.StateHasSession)
		if ok, _, err := c.Exists("/third"); !ok || err != nil {
			t.Errorf("the create was not applied: %v %v", ok, err)
		}
		s.Before(zktest.Match{Op: zktest.OpCreate, Path: "/four*", Nth: 1}, zktest.Cut)
		if _, err := c.Create("/fourth", nil, 0, open); err != zk.ErrConnectionClosed {
			t.Errorf("create that was cut: %v", err)
		}
		waitState(t, events, zk.StateHasSession)
		if ok, _, err := c.Exists("/fourth"); ok || err != nil {
			t.Errorf("the create was applied: %v %v", ok, err)
		}
		s.Before(zktest.Match{Op: zktest.OpGetData}, zktest.Fail(zk.ErrNoAuth))
		if _, _, err := c.Get("/first"); err != zk.ErrNoAuth {
			t.Errorf("get: %v", err)
		}
	})
}

// TestHook_CloseSession fails if a hook cannot delay the reply to closeSession.
func TestHook_CloseSession(t *testing.T) {
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
			t.Errorf("%d log entries for one closed session", n)
		}
	})
}
