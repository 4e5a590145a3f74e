package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
)

// A follower reports that it has joined, the hand-over and its duration, and its keepalives.
func TestEventsOfAHandOver(t *testing.T) {
	srv := startServers(t, 1)
	leader := elect(t, srv.Client())
	first := leader.leads()
	// The candidate reads the queue once per session timeout. If it found the departure in
	// this way, the duration would be unknown.
	e, err := etcd.NewElection(srv.Client(), node, etcd.WithSessionTimeout(10*patience))
	require.NoError(t, err)
	events, ended := e.Events(), make(chan error, 1)
	go func() { ended <- e.ElectLeader() }()
	limit := time.After(patience)
	next := func() leaderelection.Event {
		t.Helper()
		select {
		case event, open := <-events:
			require.True(t, open)
			return event
		case <-limit:
			require.FailNow(t, "no event")
		}
		panic("unreachable")
	}
	require.Equal(t, leaderelection.EventJoined, next().Kind)
	require.NotEmpty(t, e.ID())
	for e.Current().NowFollowing == "" {
		require.NoError(t, first.Err())
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, leader.Resign())
	var role []leaderelection.Event
	for checked := false; len(role) < 2 || !checked; {
		event := next()
		require.Equal(t, e.ID(), event.ID)
		switch {
		case event.Kind != leaderelection.EventChecked:
			role = append(role, event)
		case event.Err == nil:
			require.Positive(t, event.Duration)
			checked = true
		}
	}
	require.Len(t, role, 2)
	require.Equal(t, leaderelection.EventElected, role[0].Kind)
	require.Equal(t, leaderelection.EventHandOver, role[1].Kind)
	require.Positive(t, role[1].Duration)
	for _, event := range role {
		require.Equal(t, e.Current().Leadership.Token(), event.Token)
	}
	_ = e.Resign()
	require.NoError(t, <-ended)
}
