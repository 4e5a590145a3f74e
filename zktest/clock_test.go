package zktest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestAdvance_ExpiresSessionsAndZnodesAtRightTime checks that sessions, TTL nodes and containers expire exactly
// when the test has advanced the manual clock far enough.
func TestAdvance_ExpiresSessionsAndZnodesAtRightTime(t *testing.T) {
	s := zktest.Start(t, zktest.WithManualClock(), zktest.WithTick(time.Second))
	a, _ := connect(t, s, 10*time.Second)
	mustCreate(t, a, "/e", "", zk.FlagEphemeral)
	_, err := a.CreateTTL("/ttl", nil, zk.FlagTTL, openACL, 90*time.Second)
	require.NoError(t, err)
	_, err = a.CreateContainer("/box", nil, zk.FlagContainer, openACL)
	require.NoError(t, err)
	mustCreate(t, a, "/box/a", "", 0)
	require.NoError(t, a.Delete("/box/a", -1))
	b, _ := connect(t, s, time.Minute)
	_, _, gone, err := b.ExistsW("/e")
	require.NoError(t, err)
	left := s.Sessions()[0].ExpiresIn
	assert.True(t, left >= 10*time.Second && left <= 11*time.Second, "the session expires in %v", left)
	s.Advance(left - time.Millisecond)
	require.Len(t, s.Sessions(), 2, "sessions before the expiry")
	s.Advance(time.Millisecond)
	ids := s.Sessions()
	assert.True(t, len(ids) == 1 && ids[0].ID == b.SessionID(), "sessions %+v", ids)
	<-gone
	if _, _, err := b.Get("/ttl"); err != nil { // this request also extends the session of b
		t.Error(err)
	}
	s.Advance(50 * time.Second)
	if tree := s.Tree(); strings.Contains(tree, "box") || !strings.Contains(tree, "ttl") {
		t.Errorf("the tree after a minute is\n%s", tree)
	}
	_, _, err = b.Get("/ttl")
	assert.NoError(t, err)
	s.Advance(time.Minute)
	if tree := s.Tree(); strings.Contains(tree, "ttl") {
		t.Errorf("the tree after two minutes is\n%s", tree)
	}
}
