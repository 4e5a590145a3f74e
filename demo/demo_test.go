package main

import (
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"log"
	"os"
	"regexp"
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

// testSession is the session timeout of the tests. It is longer than the default of the demo,
// because other tests run at the same time.
const testSession = 4 * time.Second

// commandVariable is an environment variable that makes the test binary behave as the command.
const commandVariable = "DEMO_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		main()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// runAndRead runs the demo with an output that is not a terminal, and returns the output.
func runAndRead(ctx context.Context, t *testing.T, opts options) (string, error) {
	t.Helper()
	var b strings.Builder
	err := runDemo(ctx, opts, &b, false)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("output:\n" + b.String())
		}
	})
	return b.String(), err
}

// requireAllSteps requires that the output shows the expected results of all steps. The demo itself checks that
// tokens increase, and that a leader stops before its successor leads.
func requireAllSteps(t *testing.T, text string) {
	t.Helper()
	for _, result := range []string{
		"bob leads \\S+ ms after the crash of ada",
		"cyn leads \\S+ ms after the resignation of bob",
		"bob  tries to write too: refused",
		"cyn  tries to write too: refused",
		"ada leads \\S+ ms after the cut-off of cyn",
		"cyn had stopped \\S+ ms before, although its connection looked healthy",
		"cyn  not in the queue: its session has expired",
		"ada  has ended: the election is over",
		"bob  has ended: the election is over",
		"cyn  has ended: the election is over",
		"An observer sees: the election is over",
		"Deleted /leaderelection-demo-",
	} {
		assert.Regexp(t, result, text)
	}
	assert.NotContains(t, text, "\x1b", "ANSI codes although the output is not a terminal")
	for line := range strings.Lines(text) {
		assert.Less(t, len(strings.TrimSuffix(line, "\n")), 80, "%q is too long", line)
	}
}

// requirePicture requires that the output contains the words of the picture in README.md.
func requirePicture(t *testing.T, text string) {
	t.Helper()
	picture, err := os.ReadFile("../docs/demo-light.svg")
	require.NoError(t, err)
	var svg struct {
		Lines []string `xml:"g>text"`
	}
	require.NoError(t, xml.Unmarshal(picture, &svg))
	require.Greater(t, len(svg.Lines), 10)
	number := regexp.MustCompile(`\d+(\.\d+)?|\+`) // matches times, tokens and differences
	normalize := func(s string) string { return strings.Join(strings.Fields(number.ReplaceAllString(s, "")), " ") }
	for _, line := range svg.Lines[1:] { // the first line is the command
		assert.Contains(t, normalize(text), normalize(line), "draw this line of docs/demo-*.svg again")
	}
}

// TestRunDemo_CompletesAllStepsOnEmbeddedServers checks that each step has the expected result on embedded
// servers.
func TestRunDemo_CompletesAllStepsOnEmbeddedServers(t *testing.T) {
	t.Parallel()
	text, err := runAndRead(t.Context(), t, options{session: testSession})
	require.NoError(t, err)
	requireAllSteps(t, text)
	requirePicture(t, text)
	assert.Contains(t, text, "Three embedded servers (package zktest)")
	assert.Contains(t, text, "cyn's server loses the other two servers")
	assert.Contains(t, text, "stopped the servers")
}

// TestRunDemo_CleansUpIfInterruptedDuringPartition checks that the demo can clean up while a server is
// partitioned. TestMain detects goroutines that are still running.
func TestRunDemo_CleansUpIfInterruptedDuringPartition(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := &triggerWriter{word: "cyn  is cut off", fire: interrupt}
	err := runDemo(ctx, options{session: testSession}, out, false)
	require.ErrorIs(t, err, context.Canceled)
	assert.NotContains(t, out.text.String(), "Some znodes remain")
	assert.Contains(t, out.text.String(), "stopped the servers")
}

// TestRunDemo_DeletesItsZnodesOnUserServers checks that each step on real servers has the expected result, and
// that no znodes remain, even if the demo is interrupted or fails.
func TestRunDemo_DeletesItsZnodesOnUserServers(t *testing.T) {
	t.Parallel()
	e, err := ensemble.Start(t.Context(), ensemble.Config{Backend: ensemble.Process, Servers: 3, TickTime: testSession / 10})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })

	t.Run("all steps", func(t *testing.T) {
		text, err := runAndRead(t.Context(), t, options{servers: e.Addrs(), session: testSession})
		require.NoError(t, err)
		requireAllSteps(t, text)
		assert.Contains(t, text, "Your ZooKeeper")
		assert.NotContains(t, text, "embedded")
		assert.NotContains(t, text, "stopped the servers")
		requireNoZnodes(t, e.Addrs())
	})

	t.Run("interrupted", func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		out := &triggerWriter{word: "The leader crashes", fire: interrupt}
		err := runDemo(ctx, options{servers: e.Addrs(), session: testSession}, out, false)
		require.ErrorIs(t, err, context.Canceled)
		assert.Contains(t, out.text.String(), "Deleted /leaderelection-demo-")
		requireNoZnodes(t, e.Addrs())
	})

	t.Run("output closed", func(t *testing.T) {
		out := &triggerWriter{word: "The leader crashes", err: io.ErrClosedPipe}
		err := runDemo(t.Context(), options{servers: e.Addrs(), session: testSession}, out, true)
		require.ErrorIs(t, err, context.Canceled)
		requireNoZnodes(t, e.Addrs())
	})

	t.Run("unexpected end of the election", func(t *testing.T) {
		// Another client ends the election as soon as it has a leader.
		out := &triggerWriter{word: "writes as leader", fire: func() { endElection(t, e.Addrs()) }}
		err := runDemo(t.Context(), options{servers: e.Addrs(), session: testSession, pause: time.Second}, out, false)
		require.Error(t, err)
		require.ErrorIs(t, err, leaderelection.ErrElectionOver)
		assert.Contains(t, out.text.String(), "FAILED: ")
		requireNoZnodes(t, e.Addrs())
	})
}

// TestRunDemo_StopsWhenContextIsDone checks that the demo stops when its context is done while no server
// answers.
func TestRunDemo_StopsWhenContextIsDone(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("timeout of the test"))
	defer cancel()
	_, err := runAndRead(ctx, t, options{servers: []string{"127.0.0.1:1"}, session: testSession})
	require.ErrorContains(t, err, "no ZooKeeper session")
}

// TestOptions_ParseRejectsInvalidValues checks that parse stores the value of each flag, and rejects invalid
// values and arguments.
func TestOptions_ParseRejectsInvalidValues(t *testing.T) {
	for line, want := range map[string]options{
		"":                                 {servers: []string{}, session: 2 * time.Second, pause: 3 * time.Second},
		"--zk=a:1, b:2,":                   {servers: []string{"a:1", "b:2"}, session: 4 * time.Second, pause: 3 * time.Second},
		"--zk=a:1|--session=5s|--pause=0s": {servers: []string{"a:1"}, session: 5 * time.Second},
	} {
		var opts options
		require.NoError(t, opts.parse(flag.NewFlagSet("demo", flag.ContinueOnError), splitColumns(line)), line)
		assert.Equal(t, want, opts, line)
	}
	for _, line := range []string{"--zk=,", "--session=1ms", "--session=1h", "--pause=-1s", "surplus"} {
		var opts options
		assert.Error(t, opts.parse(flag.NewFlagSet("demo", flag.ContinueOnError), splitColumns(line)), line)
	}
}

// splitColumns returns the arguments of a line that separates them by "|".
func splitColumns(line string) []string {
	return strings.FieldsFunc(line, func(r rune) bool { return r == '|' })
}

// triggerWriter is a writer that calls a function once when a certain text is written.
type triggerWriter struct {
	text  strings.Builder
	word  string
	fire  func()
	err   error // the result of this write and all later writes
	fired bool
}

func (w *triggerWriter) Write(p []byte) (int, error) {
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
		for range events { // receives until the channel is closed
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
