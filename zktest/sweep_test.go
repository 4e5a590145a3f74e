package zktest_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestSweep_Containers fails if a container that is in use or was never used is deleted.
func TestSweep_Containers(t *testing.T) {
	s := zktest.Start(t)
	c, _ := connect(t, s, 10*time.Second)
	for _, p := range []string{"/used", "/unused"} {
		if _, err := c.CreateContainer(p, nil, zk.FlagContainer, open); err != nil {
			t.Fatal(err)
		}
	}
	mustCreate(t, c, "/used/a", "", 0)
	if n := s.Sweep(); n != 0 {
		t.Errorf("%d znodes in use were deleted", n)
	}
	if err := c.Delete("/used/a", -1); err != nil {
		t.Fatal(err)
	}
	if n := s.Sweep(); n != 1 {
		t.Errorf("%d znodes were deleted", n)
	}
}
