package zktest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestManualClock_Advance fails if sessions, TTL nodes or containers expire at the wrong time.
func TestManualClock_Advance(t *testing.T) {
	s := zktest.Start(t, zktest.WithManualClock(), zktest.WithTick(time.Second))
	a, _ := connect(t, s, 10*time.Second)
	mustCreate(t, a, "/e", "", zk.FlagEphemeral)
	if _, err := a.CreateTTL("/ttl", nil, zk.FlagTTL, open, 90*time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := a.CreateContainer("/box", nil, zk.FlagContainer, open); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, a, "/box/a", "", 0)
	if err := a.Delete("/box/a", -1); err != nil {
		t.Fatal(err)
	}
	b, _ := connect(t, s, time.Minute)
	_, _, gone, err := b.ExistsW("/e")
	if err != nil {
		t.Fatal(err)
	}
	left := s.Sessions()[0].ExpiresIn
	if left < 10*time.Second || left > 11*time.Second {
		t.Errorf("the session expires in %v", left)
	}
	s.Advance(left - time.Millisecond)
	if n := len(s.Sessions()); n != 2 {
		t.Fatalf("%d sessions before the expiry", n)
	}
	s.Advance(time.Millisecond)
	if ids := s.Sessions(); len(ids) != 1 || ids[0].ID != b.SessionID() {
		t.Errorf("sessions %+v", ids)
	}
	<-gone
	if _, _, err := b.Get("/ttl"); err != nil { // extends the session of b as well
		t.Error(err)
	}
	s.Advance(50 * time.Second)
	if tree := s.Tree(); strings.Contains(tree, "box") || !strings.Contains(tree, "ttl") {
		t.Errorf("after a minute:\n%s", tree)
	}
	if _, _, err := b.Get("/ttl"); err != nil {
		t.Error(err)
	}
	s.Advance(time.Minute)
	if tree := s.Tree(); strings.Contains(tree, "ttl") {
		t.Errorf("after two minutes:\n%s", tree)
	}
}
