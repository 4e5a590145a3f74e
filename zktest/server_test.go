package zktest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestServer_Requests fails if the result of a request of a go-zookeeper client is wrong.
func TestServer_Requests(t *testing.T) {
	s := zktest.Start(t)
	c, _ := connect(t, s, 10*time.Second)
	mustCreate(t, c, "/a", "one", 0)
	if p := mustCreate(t, c, "/a/n-", "", zk.FlagSequence); p != "/a/n-0000000000" {
		t.Errorf("first sequential node is %s", p)
	}
	if p := mustCreate(t, c, "/a/n-", "", zk.FlagSequence|zk.FlagEphemeral); p != "/a/n-0000000001" {
		t.Errorf("second sequential node is %s", p)
	}
	if _, err := c.Create("/a", nil, 0, open); err != zk.ErrNodeExists {
		t.Errorf("create again: %v", err)
	}
	data, stat, err := c.Get("/a")
	if err != nil || string(data) != "one" || stat.NumChildren != 2 || stat.Cversion != 2 {
		t.Errorf("get: %q %+v %v", data, stat, err)
	}
	_, _, ch, err := c.GetW("/a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Set("/a", []byte("two"), 0); err != nil {
		t.Fatal(err)
	}
	if ev := <-ch; ev.Type != zk.EventNodeDataChanged || ev.Path != "/a" {
		t.Errorf("event %+v", ev)
	}
	if err := c.Delete("/a", -1); err != zk.ErrNotEmpty {
		t.Errorf("delete with children: %v", err)
	}
	res, err := c.Multi(&zk.CreateRequest{Path: "/b", Acl: open}, &zk.CheckVersionRequest{Path: "/nope", Version: -1})
	if err != zk.ErrNoNode || len(res) != 2 {
		t.Errorf("multi: %v %v", res, err)
	}
	if ok, _, _ := c.Exists("/b"); ok {
		t.Error("a part of a failed multi was applied")
	}
	if _, err := c.Multi(&zk.CreateRequest{Path: "/b", Acl: open}, &zk.SetDataRequest{Path: "/b", Data: []byte("x"), Version: 0}); err != nil {
		t.Errorf("multi: %v", err)
	}
	if _, err := c.Sync("/a"); err != nil {
		t.Error(err)
	}
	if !strings.Contains(s.Tree(), `  a "two"`) {
		t.Errorf("tree:\n%s", s.Tree())
	}
}

// TestServer_FakeTime fails if the server does not use the fake time of a bubble.
func TestServer_FakeTime(t *testing.T) {
	start := time.Now()
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, events := connect(t, s, 10*time.Second)
		mustCreate(t, c, "/e", "", zk.FlagEphemeral)
		id := c.SessionID()
		time.Sleep(time.Hour)
		if c.SessionID() != id {
			t.Fatal("the session has changed within an hour")
		}
		if n := s.Log().Count(zktest.OpPing); n < 1000 {
			t.Errorf("%d pings in an hour", n)
		}
		s.Refuse(true)
		s.DropConnections()
		time.Sleep(11 * time.Second)
		if n := len(s.Sessions()); n != 0 {
			t.Errorf("%d sessions after the timeout", n)
		}
		s.Refuse(false)
		waitState(t, events, zk.StateExpired)
		waitState(t, events, zk.StateHasSession)
		if ok, _, err := c.Exists("/e"); ok || err != nil {
			t.Errorf("the ephemeral znode after the expiry: %v %v", ok, err)
		}
	})
	if d := time.Since(start); d > time.Minute {
		t.Errorf("an hour took %v", d)
	}
}

func TestServer_EightHours(t *testing.T) { idleForEightHours(t) }

// recordingTB records the failures of a test.
type recordingTB struct {
	zktest.TB
	failed, fatal []string
	cleanups      int
}

func (s *recordingTB) Helper() {}

func (s *recordingTB) Cleanup(func()) { s.cleanups++ }

func (s *recordingTB) Errorf(format string, args ...any) {
	s.failed = append(s.failed, fmt.Sprintf(format, args...))
}

func (s *recordingTB) Fatalf(format string, args ...any) {
	s.fatal = append(s.fatal, fmt.Sprintf(format, args...))
}

// TestStart_FailsTest fails if an error of Start, StartEnsemble or Addr does not fail the test.
func TestStart_FailsTest(t *testing.T) {
	var bad recordingTB
	if s := zktest.Start(&bad, zktest.WithTick(-1)); s != nil || len(bad.fatal) != 1 || bad.cleanups != 0 {
		t.Errorf("Start with an invalid tick: %+v", bad)
	}
	bad = recordingTB{}
	if c := zktest.StartEnsemble(&bad, 3, zktest.WithTick(-1)); c != nil || len(bad.fatal) != 1 || bad.cleanups != 0 {
		t.Errorf("StartEnsemble with an invalid tick: %+v", bad)
	}
	bad = recordingTB{}
	s := zktest.Start(&bad, zktest.WithAddr("127.0.0.1:-1"))
	defer s.Close()
	if addr := s.Addr(); addr != "" || len(bad.failed) != 1 || bad.cleanups != 1 {
		t.Errorf("Addr %q: %+v", addr, bad)
	}
}
