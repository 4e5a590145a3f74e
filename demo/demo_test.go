package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// testSession is longer than the default of the demo, because other tests run at the same time.
const testSession = 4 * time.Second

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// runAndRead runs the demo with an output that is not a terminal, and returns the output.
func runAndRead(ctx context.Context, t *testing.T, opts Options) (result, string, error) {
	t.Helper()
	var b strings.Builder
	r, err := runDemo(ctx, opts, newScreen(&b, false, false))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("output:\n" + b.String())
		}
	})
	return r, b.String(), err
}

// requireAllSteps requires that all steps had the expected results.
func requireAllSteps(t *testing.T, r result, text string) {
	t.Helper()
	var successions []string
	token := int64(0)
	for _, s := range r.successions {
		successions = append(successions, s.from+" to "+s.to+" after "+s.cause)
		assert.Greater(t, s.token, token)
		token = s.token
		assert.Contains(t, text, s.String())
	}
	require.Equal(t, []string{
		"ada to bob after crash", "bob to cyn after resignation", "cyn to ada after cut-off",
	}, successions)
	assert.Positive(t, r.successions[2].stopped)
	assert.Less(t, r.successions[2].stopped, r.successions[2].took)
	assert.Equal(t, []string{"bob", "cyn"}, r.refused)
	assert.Equal(t, []string{"ada", "bob", "cyn"}, r.over)

	assert.NotContains(t, text, "\x1b", "ANSI codes although the output is not a terminal")
	for line := range strings.Lines(text) {
		assert.Less(t, len(strings.TrimSuffix(line, "\n")), 80, "%q is too long", line)
	}
}

// TestRunDemo_EmbeddedServers fails if a step does not have the expected result.
func TestRunDemo_EmbeddedServers(t *testing.T) {
	t.Parallel()
	r, text, err := runAndRead(t.Context(), t, Options{Session: testSession})
	require.NoError(t, err)
	requireAllSteps(t, r, text)
	assert.Contains(t, text, "Three embedded servers (package zktest)")
	assert.Contains(t, text, "cyn's server loses the other two servers")
	assert.Contains(t, text, "stopped the servers")
}

// TestRunDemo_InterruptedDuringPartition fails if the demo cannot clean up while a server is partitioned. TestMain
// detects goroutines that are still running.
func TestRunDemo_InterruptedDuringPartition(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := &trigger{word: "cyn  is cut off", fire: interrupt}
	_, err := runDemo(ctx, Options{Session: testSession}, newScreen(out, false, false))
	require.ErrorIs(t, err, context.Canceled)
	assert.NotContains(t, out.text.String(), "Some znodes remain")
	assert.Contains(t, out.text.String(), "stopped the servers")
}

// TestRunDemo_UserServers fails if a step on real servers does not have the expected result, or if znodes remain.
func TestRunDemo_UserServers(t *testing.T) {
	t.Parallel()
	e, err := ensemble.Start(t.Context(), ensemble.Config{Backend: ensemble.Process, Servers: 3, TickTime: testSession / 10})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })

	t.Run("all steps", func(t *testing.T) {
		r, text, err := runAndRead(t.Context(), t, Options{Servers: e.Addrs(), Session: testSession})
		require.NoError(t, err)
		requireAllSteps(t, r, text)
		assert.Contains(t, text, "Your ZooKeeper")
		assert.NotContains(t, text, "embedded")
		assert.NotContains(t, text, "stopped the servers")
		requireNoZnodes(t, e.Addrs())
	})

	t.Run("interrupted", func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		out := &trigger{word: "The leader crashes", fire: interrupt}
		_, err := runDemo(ctx, Options{Servers: e.Addrs(), Session: testSession}, newScreen(out, false, false))
		require.ErrorIs(t, err, context.Canceled)
		assert.Contains(t, out.text.String(), "Deleted /leaderelection-demo-")
		requireNoZnodes(t, e.Addrs())
	})

	t.Run("output closed", func(t *testing.T) {
		out := &trigger{word: "The leader crashes", err: io.ErrClosedPipe}
		_, err := runDemo(t.Context(), Options{Servers: e.Addrs(), Session: testSession}, newScreen(out, true, true))
		require.ErrorIs(t, err, context.Canceled)
		requireNoZnodes(t, e.Addrs())
	})

	t.Run("unexpected end of the election", func(t *testing.T) {
		// Another client ends the election as soon as it has a leader.
		out := &trigger{word: "writes as leader", fire: func() { endElection(t, e.Addrs()) }}
		_, err := runDemo(t.Context(), Options{Servers: e.Addrs(), Session: testSession, Pause: time.Second},
			newScreen(out, false, false))
		require.Error(t, err)
		require.ErrorIs(t, err, leaderelection.ErrElectionOver)
		assert.Contains(t, out.text.String(), "FAILED: ")
		requireNoZnodes(t, e.Addrs())
	})
}

// TestRunDemo_NoServer fails if the demo does not stop when its context is done.
func TestRunDemo_NoServer(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("timeout of the test"))
	defer cancel()
	_, _, err := runAndRead(ctx, t, Options{Servers: []string{"127.0.0.1:1"}, Session: testSession})
	require.ErrorContains(t, err, "no ZooKeeper session")
}

// TestOptions fails if a flag is ignored, or if an invalid value is accepted.
func TestOptions(t *testing.T) {
	for _, servers := range [][]string{nil, {"a:1", "b:2"}} {
		opts := Options{Servers: servers}
		require.NoError(t, opts.Complete())
		assert.Equal(t, Options{Servers: servers, Session: time.Duration(2+len(servers)) * time.Second}, opts)
	}

	var opts Options
	set := flag.NewFlagSet("demo", flag.ContinueOnError)
	opts.Flags(set)
	require.NoError(t, set.Parse([]string{"--zk", "a:1, b:2,", "--session", "5s", "--pause", "0s"}))
	require.NoError(t, opts.Complete())
	assert.Equal(t, []string{"a:1", "b:2"}, opts.Servers)
	assert.Equal(t, 5*time.Second, opts.Session)
	assert.Zero(t, opts.Pause)

	for _, opts := range []Options{{Session: time.Millisecond}, {Session: time.Hour}, {Pause: -1}} {
		assert.Error(t, opts.Complete(), "%v", opts)
	}
}

// trigger is a writer that calls a function once when a text is written.
type trigger struct {
	text  strings.Builder
	word  string
	fire  func()
	err   error // the result of this write and all later writes
	fired bool
}

func (w *trigger) Write(p []byte) (int, error) {
	w.text.Write(p)
	if !w.fired && strings.Contains(string(p), w.word) {
		w.fired = true
		if w.fire != nil {
			w.fire()
		}
	}
	if w.fired && w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// openTestSession opens a session that the test uses.
func openTestSession(t *testing.T, addrs []string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(addrs, testSession, zk.WithLogger(log.New(io.Discard, "", 0)))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		for range events { // until it is closed
		}
	})
	return conn
}

// rootChildren returns the znodes that the demo has created in the root.
func rootChildren(t *testing.T, conn *zk.Conn) []string {
	t.Helper()
	_, err := conn.Sync("/") // the server may lag behind the server of the demo
	require.NoError(t, err)
	children, _, err := conn.Children("/")
	require.NoError(t, err)
	return slices.DeleteFunc(children, func(name string) bool { return name == "zookeeper" })
}

func requireNoZnodes(t *testing.T, addrs []string) {
	t.Helper()
	require.Empty(t, rootChildren(t, openTestSession(t, addrs)))
}

func endElection(t *testing.T, addrs []string) {
	conn := openTestSession(t, addrs)
	for _, root := range rootChildren(t, conn) {
		assert.NoError(t, leaderelection.DeleteElection(conn, "/"+root+"/election"))
	}
}
