package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logTo makes the log of the candidates go to w, without times.
func logTo(t *testing.T, w io.Writer) {
	flags := log.Flags()
	log.SetFlags(0)
	log.SetOutput(w)
	t.Cleanup(func() {
		log.SetFlags(flags)
		log.SetOutput(os.Stderr)
	})
}

// TestRunThreeCandidates checks that candidates work only while they lead, and that the order of the leaders
// is right. It uses fake time, so that no event coincides with a change of the leader.
func TestRunThreeCandidates(t *testing.T) {
	var out bytes.Buffer
	logTo(t, &out)
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, runThreeCandidates(t.Context(), "/election"))
	})
	t.Log("\n" + out.String())

	var leaders []string            // the names of the leaders, in the order of their leaderships
	events := map[string][]string{} // what each candidate has logged, by its name
	token := 0
	for line := range strings.Lines(out.String()) {
		name, event, _ := strings.Cut(strings.TrimSpace(line), ": ")
		var worked int // the token of the leadership that has worked
		switch _, err := fmt.Sscanf(event, "working as leader, token %d", &worked); {
		case err == nil:
			event = "works"
			require.NotEmpty(t, leaders)
			assert.Equal(t, leaders[len(leaders)-1], name, "works without leading")
			assert.GreaterOrEqual(t, worked, token)
			token = worked
		case event == "leader":
			leaders = append(leaders, name)
			token++ // the token of the next leader must be greater
		case strings.HasPrefix(event, "no longer the leader: "):
			assert.Contains(t, event, "has resigned")
			event = "stops"
		}
		if own := events[name]; len(own) == 0 || own[len(own)-1] != event {
			events[name] = append(own, event)
		}
	}
	assert.Equal(t, []string{"ada", "bob", "cyn"}, leaders)
	assert.Equal(t, map[string][]string{
		"ada": {"leader", "works", "stops"},
		"bob": {"follower", "leader", "works", "stops"},
		"cyn": {"follower", "leader", "works", "stops"},
	}, events)
}

// TestRunThreeCandidates_Interrupted checks that the candidates stop when the context is done.
func TestRunThreeCandidates_Interrupted(t *testing.T) {
	logTo(t, io.Discard)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, interrupt := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer interrupt()
		require.NoError(t, runThreeCandidates(ctx, "/election"))
		assert.Less(t, time.Since(start), 3*time.Second)
	})
}

// TestRunCandidate checks that a candidate on a server, as with --zk, leads and resigns.
func TestRunCandidate(t *testing.T) {
	server := zktest.Start(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	logTo(t, onLeader(interrupt))
	require.NoError(t, runCandidate(ctx, []string{server.Addr()}, "/deep/election", "ada"))
	assert.Equal(t, "/\n  deep container\n    election\n", server.Tree())
}

// TestRunCandidate_ResignationUnconfirmed checks that a resignation that ZooKeeper has not received is not
// reported as done.
func TestRunCandidate_ResignationUnconfirmed(t *testing.T) {
	server := zktest.Start(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	logTo(t, onLeader(func() {
		server.Blackhole(zktest.BothWays)
		interrupt()
	}))
	err := runCandidate(ctx, []string{server.Addr()}, "/election", "ada")
	require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
}

// TestRunCandidate_NoServer checks that a candidate stops on Ctrl-C while it waits for a server.
func TestRunCandidate_NoServer(t *testing.T) {
	logTo(t, io.Discard)
	ctx, interrupt := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer interrupt()
	require.Error(t, runCandidate(ctx, []string{"127.0.0.1:1"}, "/election", "ada"))
}

// onLeader is a log that calls a function when a candidate becomes the leader.
type onLeader func()

func (f onLeader) Write(p []byte) (int, error) {
	if strings.HasSuffix(string(p), ": leader\n") {
		f()
	}
	return len(p), nil
}
