package demo

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

// testSession is longer than the demo's own: other tests share the machine.
const testSession = 4 * time.Second

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// tell runs the demo as a pipe would see it.
func tell(ctx context.Context, t *testing.T, opts Options) (outcome, string, error) {
	t.Helper()
	var b strings.Builder
	result, err := run(ctx, opts, newScreen(&b, false, false))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the demo said:\n" + b.String())
		}
	})
	return result, b.String(), err
}

// checkStory checks that everything has happened which the demo is there for.
func checkStory(t *testing.T, result outcome, text string) {
	t.Helper()
	var story []string
	token := int64(0)
	for _, s := range result.successions {
		story = append(story, s.from+" to "+s.to+" after "+s.why)
		assert.Greater(t, s.token, token)
		token = s.token
		assert.Contains(t, text, s.String())
	}
	require.Equal(t, []string{
		"ada to bob after crash", "bob to cyn after resignation", "cyn to ada after cut-off",
	}, story)
	assert.Positive(t, result.successions[2].stopped)
	assert.Less(t, result.successions[2].stopped, result.successions[2].took)
	assert.Equal(t, []string{"bob", "cyn"}, result.refused)
	assert.Equal(t, []string{"ada", "bob", "cyn"}, result.over)

	assert.NotContains(t, text, "\x1b", "control codes without a terminal")
	for line := range strings.Lines(text) {
		assert.Less(t, len(strings.TrimSuffix(line, "\n")), 80, "%q is too long", line)
	}
}

func TestDemoOnEmbeddedServers(t *testing.T) {
	t.Parallel()
	result, text, err := tell(t.Context(), t, Options{Session: testSession})
	require.NoError(t, err)
	checkStory(t, result, text)
	assert.Contains(t, text, "Three embedded servers (package zktest)")
	assert.Contains(t, text, "cyn's server loses the other two servers")
	assert.Contains(t, text, "stopped the servers")
}

// That nothing runs on is goleak's to say.
func TestInterruptedWhileAServerIsCutOff(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := &trigger{word: "cyn  is cut off", fire: interrupt}
	_, err := run(ctx, Options{Session: testSession}, newScreen(out, false, false))
	require.ErrorIs(t, err, context.Canceled)
	assert.NotContains(t, out.text.String(), "Not all is cleaned up")
	assert.Contains(t, out.text.String(), "stopped the servers")
}

// What needs real servers shares them.
func TestDemoOnServersOfTheUser(t *testing.T) {
	t.Parallel()
	e, err := ensemble.Start(t.Context(), ensemble.Config{Backend: ensemble.Process, Servers: 3, TickTime: testSession / 10})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })

	t.Run("whole story", func(t *testing.T) {
		result, text, err := tell(t.Context(), t, Options{Servers: e.Addrs(), Session: testSession})
		require.NoError(t, err)
		checkStory(t, result, text)
		assert.Contains(t, text, "Your ZooKeeper")
		assert.NotContains(t, text, "embedded")
		assert.NotContains(t, text, "stopped the servers")
		requireNothingLeft(t, e.Addrs())
	})

	t.Run("interrupted", func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		out := &trigger{word: "The leader crashes", fire: interrupt}
		_, err := run(ctx, Options{Servers: e.Addrs(), Session: testSession}, newScreen(out, false, false))
		require.ErrorIs(t, err, context.Canceled)
		assert.Contains(t, out.text.String(), "Deleted /leaderelection-demo-")
		requireNothingLeft(t, e.Addrs())
	})

	t.Run("nobody reads", func(t *testing.T) {
		out := &trigger{word: "The leader crashes", err: io.ErrClosedPipe}
		_, err := run(t.Context(), Options{Servers: e.Addrs(), Session: testSession}, newScreen(out, true, true))
		require.ErrorIs(t, err, context.Canceled)
		requireNothingLeft(t, e.Addrs())
	})

	t.Run("an expected step does not happen", func(t *testing.T) {
		// The election is ended from outside as soon as it has a leader.
		out := &trigger{word: "writes as leader", fire: func() { endElection(t, e.Addrs()) }}
		_, err := run(t.Context(), Options{Servers: e.Addrs(), Session: testSession, Pause: time.Second},
			newScreen(out, false, false))
		require.Error(t, err)
		require.ErrorIs(t, err, leaderelection.ErrElectionOver)
		assert.Contains(t, out.text.String(), "FAILED: ")
		requireNothingLeft(t, e.Addrs())
	})
}

func TestDemoWithoutServers(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
	defer cancel()
	_, _, err := tell(ctx, t, Options{Servers: []string{"127.0.0.1:1"}, Session: testSession})
	require.ErrorContains(t, err, "no ZooKeeper session")
}

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

// trigger is a writer that does something once when it sees a word.
type trigger struct {
	text strings.Builder
	word string
	fire func()
	err  error // of this write and all later ones
	hit  bool
}

func (w *trigger) Write(p []byte) (int, error) {
	w.text.Write(p)
	if !w.hit && strings.Contains(string(p), w.word) {
		w.hit = true
		if w.fire != nil {
			w.fire()
		}
	}
	if w.hit && w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// dial opens a session of the test's own.
func dial(t *testing.T, addrs []string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(addrs, testSession, zk.WithLogger(log.New(io.Discard, "", 0)))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		for range events { // until nothing of conn is left
		}
	})
	return conn
}

func roots(t *testing.T, conn *zk.Conn) []string {
	t.Helper()
	_, err := conn.Sync("/") // its server may lag behind the demo's
	require.NoError(t, err)
	children, _, err := conn.Children("/")
	require.NoError(t, err)
	return slices.DeleteFunc(children, func(name string) bool { return name == "zookeeper" })
}

func requireNothingLeft(t *testing.T, addrs []string) {
	t.Helper()
	require.Empty(t, roots(t, dial(t, addrs)))
}

func endElection(t *testing.T, addrs []string) {
	conn := dial(t, addrs)
	for _, root := range roots(t, conn) {
		assert.NoError(t, leaderelection.DeleteElection(conn, "/"+root+"/election"))
	}
}
