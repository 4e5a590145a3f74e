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

// logTo has the candidates' lines written to w, without times.
func logTo(t *testing.T, w io.Writer) {
	flags := log.Flags()
	log.SetFlags(0)
	log.SetOutput(w)
	t.Cleanup(func() {
		log.SetFlags(flags)
		log.SetOutput(os.Stderr)
	})
}

// On fake time: nothing else happens at the moment when a leadership ends.
func TestThreeCandidates(t *testing.T) {
	var out bytes.Buffer
	logTo(t, &out)
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, threeCandidates(t.Context(), "/election"))
	})
	t.Log("\n" + out.String())

	var leaders []string // in their order
	lives := map[string][]string{}
	token := 0
	for line := range strings.Lines(out.String()) {
		name, what, _ := strings.Cut(strings.TrimSpace(line), ": ")
		var grant int
		switch _, err := fmt.Sscanf(what, "working as leader, token %d", &grant); {
		case err == nil:
			what = "works"
			require.NotEmpty(t, leaders)
			assert.Equal(t, leaders[len(leaders)-1], name, "works and does not lead")
			assert.GreaterOrEqual(t, grant, token)
			token = grant
		case what == "leader":
			leaders = append(leaders, name)
			token++ // the next one is greater
		case strings.HasPrefix(what, "not leader any more: "):
			assert.Contains(t, what, "has resigned")
			what = "stops"
		}
		if life := lives[name]; len(life) == 0 || life[len(life)-1] != what {
			lives[name] = append(life, what)
		}
	}
	assert.Equal(t, []string{"ada", "bob", "cyn"}, leaders)
	assert.Equal(t, map[string][]string{
		"ada": {"leader", "works", "stops"},
		"bob": {"follower", "leader", "works", "stops"},
		"cyn": {"follower", "leader", "works", "stops"},
	}, lives)
}

func TestThreeCandidatesInterrupted(t *testing.T) {
	logTo(t, io.Discard)
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		ctx, interrupt := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer interrupt()
		require.NoError(t, threeCandidates(ctx, "/election"))
		assert.Less(t, time.Since(begin), 3*time.Second)
	})
}

// As with --zk, over TCP.
func TestCandidate(t *testing.T) {
	server := zktest.Start(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	logTo(t, onLeader(interrupt))
	require.NoError(t, candidate(ctx, []string{server.Addr()}, "/deep/election", "ada"))
	assert.Equal(t, "/\n  deep\n    election\n", server.Tree())
}

// A resignation that ZooKeeper has not heard of is none that is reported as done.
func TestCandidateCutOff(t *testing.T) {
	server := zktest.Start(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	logTo(t, onLeader(func() {
		server.Blackhole(zktest.BothWays)
		interrupt()
	}))
	err := candidate(ctx, []string{server.Addr()}, "/election", "ada")
	require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
}

// Nothing listens there: Ctrl-C ends it all the same.
func TestCandidateWithoutServer(t *testing.T) {
	logTo(t, io.Discard)
	ctx, interrupt := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer interrupt()
	require.Error(t, candidate(ctx, []string{"127.0.0.1:1"}, "/election", "ada"))
}

// onLeader is a writer that calls a function when a candidate leads.
type onLeader func()

func (f onLeader) Write(p []byte) (int, error) {
	if strings.HasSuffix(string(p), ": leader\n") {
		f()
	}
	return len(p), nil
}
