package zktest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestSetSequence_Overflow fails if sequence numbers differ from those of a real server.
func TestSetSequence_Overflow(t *testing.T) {
	s := zktest.Start(t)
	c, _ := connect(t, s, 10*time.Second)
	mustCreate(t, c, "/q", "", 0)
	if err := s.SetSequence("/q", 2147483646); err != nil {
		t.Fatal(err)
	}
	if p := mustCreate(t, c, "/q/n-", "", zk.FlagSequence); p != "/q/n-2147483646" {
		t.Error(p)
	}
	if p := mustCreate(t, c, "/q/n-", "", zk.FlagSequence); p != "/q/n-2147483647" {
		t.Error(p)
	}
	if _, err := c.Create("/q/n-", nil, zk.FlagSequence, open); err != zk.ErrNodeExists {
		t.Errorf("after the greatest number: %v", err)
	}
	if err := s.SetSequence("/q", -5); err != nil {
		t.Fatal(err)
	}
	if p := mustCreate(t, c, "/q/n-", "", zk.FlagSequence); p != "/q/n--000000005" {
		t.Error(p)
	}
	if err := s.SetSequence("/none", 1); !errors.Is(err, zk.ErrNoNode) {
		t.Error(err)
	}
}
