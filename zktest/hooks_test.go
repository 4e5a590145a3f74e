package zktest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestHookCountsAndMatches(t *testing.T) {
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
			t.Errorf("a hook for the third ran %d times", n)
		}
		removed := s.Before(zktest.Match{}, zktest.Cut)
		removed.Remove()
		if _, _, err := a.Exists("/a"); err != nil {
			t.Error(err)
		}
	})
}

// A hook may do anything to the server, and what the client is told meanwhile
// comes after the answer.
func TestHookActsOnServer(t *testing.T) {
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

func TestHookAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, events := connect(t, s, 10*time.Second)
		s.After(zktest.Match{Op: zktest.OpCreate, Nth: 1}, zktest.Fail(zk.ErrNodeExists))
		if _, err := c.Create("/a", nil, 0, open); err != zk.ErrNodeExists {
			t.Error(err)
		}
		if ok, _, err := c.Exists("/a"); !ok || err != nil {
			t.Errorf("it was to be applied: %v %v", ok, err)
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
			t.Error("the session is another one")
		}
		log := s.Log()
		fates := map[zktest.Fate]int{}
		for _, x := range log {
			fates[x.Fate]++
		}
		if fates[zktest.Failed] != 3 || fates[zktest.CutAfter] != 1 {
			t.Errorf("the log says\n%v", log)
		}
	})
}

// While a hook takes its time the client waits, and others do not.
func TestHookBlocks(t *testing.T) {
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
			t.Errorf("the one that waited: %v", err)
		}
	})
}

func TestInstruments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		a, _ := connect(t, s, 10*time.Second)
		b, _ := connect(t, s, 10*time.Second)
		mustCreate(t, a, "/l", "", 0)
		mustCreate(t, a, "/l/n-", "a", zk.FlagEphemeral|zk.FlagSequence)
		mustCreate(t, b, "/l/n-", "b\x00", zk.FlagEphemeral|zk.FlagSequence)
		s.ResetLog()
		if _, _, _, err := b.ExistsW("/l/n-0000000000"); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := b.ChildrenW("/l"); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("/\n  l\n    n-0000000000 \"a\" ephemeral=0x%x\n    n-0000000001 \"b\\x00\" ephemeral=0x%x\n", a.SessionID(), b.SessionID())
		if got := s.Tree(); got != want {
			t.Errorf("tree\n%s, not\n%s", got, want)
		}
		if w := s.Watches(); len(w) != 2 || w[0] != (zktest.Watch{Session: b.SessionID(), Path: "/l", Kind: zktest.ChildWatch}) ||
			w[1] != (zktest.Watch{Session: b.SessionID(), Path: "/l/n-0000000000", Kind: zktest.DataWatch}) {
			t.Errorf("watches %+v", w)
		}
		if w := s.Watches("/l"); len(w) != 1 {
			t.Errorf("watches of /l %+v", w)
		}
		all := s.Sessions()
		if len(all) != 2 || all[0].ID != a.SessionID() || all[0].Server != 0 || fmt.Sprint(all[0].Ephemerals) != "[/l/n-0000000000]" {
			t.Errorf("sessions %+v", all)
		}
		if err := a.Delete("/l/n-0000000000", -1); err != nil {
			t.Fatal(err)
		}
		log := s.Log()
		if n := log.Requests().Session(b.SessionID()).Count(); n != 2 {
			t.Errorf("%d round trips", n)
		}
		if w := log.Woken("/l/n-0000000000"); len(w) != 1 || w[0] != b.SessionID() {
			t.Errorf("woken %x", w)
		}
		if n := log.Count(zktest.OpDelete, zktest.OpExists); n != 2 {
			t.Errorf("%d entries", n)
		}
		if len(s.Watches()) != 0 {
			t.Errorf("watches are left: %+v", s.Watches())
		}
	})
}

func TestLogLimit(t *testing.T) {
	s := zktest.Start(t, zktest.WithLogLimit(10))
	c, _ := connect(t, s, 10*time.Second)
	for i := range 25 {
		mustCreate(t, c, fmt.Sprintf("/n%02d", i), "", 0)
	}
	log := s.Log()
	if len(log) != 10 || log[0].Path != "/n15" || log[9].Path != "/n24" {
		t.Errorf("log\n%v", log)
	}
}
