package main

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// join starts a replica's candidate, which has its own session.
func join(t *testing.T, srv *zktest.Server) *leaderelection.Election {
	conn, _, err := srv.Connect(4 * time.Second) // an ordinary *zk.Conn
	if err != nil {
		t.Fatal(err)
	}
	candidate, err := leaderelection.NewElection(conn, "/report", leaderelection.WithCreateNode())
	if err != nil {
		t.Fatal(err)
	}
	go candidate.ElectLeader()
	return candidate
}

func TestSave_RefusedAfterAnotherReplicaLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // on fake time
		srv := zktest.Start(t)
		first := join(t, srv)
		former := (<-first.Status()).Leadership
		second := join(t, srv)
		<-second.Status() // it follows the first

		first.Resign()
		current := (<-second.Status()).Leadership
		if err := save(former, "too late"); !errors.Is(err, leaderelection.ErrNotLeader) {
			t.Errorf("the former leader's write: %v", err)
		}
		if err := save(current, "in time"); err != nil {
			t.Errorf("the leader's write: %v", err)
		}
		second.Resign()
	})
}

func TestLeadership_EndsBeforeTheSessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		candidate := join(t, srv)
		leadership := (<-candidate.Status()).Leadership

		srv.Partition() // from the other servers; it still answers this client
		<-leadership.Done()
		if len(srv.Sessions()) == 0 {
			t.Error("another replica can lead already")
		}
		srv.Heal()
		candidate.Resign()
	})
}
