package zktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// idleForEightHours is a test in a synctest bubble. Eight hours pass in a fraction of a second:
// the client sends pings, and the server counts ticks.
func idleForEightHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t) // the server is started inside the bubble
		conn, _, err := srv.Connect(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Create("/lock", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(8 * time.Hour)
		if ok, _, err := conn.Exists("/lock"); !ok || err != nil {
			t.Errorf("the session has expired: Exists returns %v, %v", ok, err)
		}
		srv.Blackhole(zktest.BothWays)
		srv.Refuse(true)
		time.Sleep(11 * time.Second)
		if n := len(srv.Sessions()); n != 0 {
			t.Errorf("%d sessions after 11 s without packets", n)
		}
	})
}

// Fake time requires a test, so the example is the function idleForEightHours.
func Example_fakeTime() {}
