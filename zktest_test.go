package leaderelection_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestStopsInTime is in README.md as a first test.
func TestStopsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // on fake time
		srv := zktest.Start(t)
		conn, _, _ := srv.Connect(4 * time.Second) // an ordinary *zk.Conn
		candidate, _ := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode())
		go candidate.ElectLeader()
		leads := <-candidate.Status()

		srv.Partition() // cut off from its ensemble, and still answers this client
		<-leads.Leadership.Done()
		if len(srv.Sessions()) == 0 {
			t.Error("another one can lead already")
		}
		srv.Heal()
		candidate.Resign()
	})
}
