//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/elector/top"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// tmuxScreen is a terminal of tmux in which a test runs elector top.
type tmuxScreen struct {
	t      *testing.T
	socket string
}

// startTop starts elector top on a terminal of 80 columns and 60 rows. The terminal is high, because outages
// and their ends fill many rows of recent changes on a loaded machine.
func (h *harness) startTop(args ...string) *tmuxScreen {
	h.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		h.Skip("tmux is not installed")
	}
	s := &tmuxScreen{h.T, h.TempDir() + "/tmux"}
	// The shell prints the exit code, because tmux (3.3a) does not always notice that its child has exited.
	command := fmt.Sprintf("env ELECTOR_BACKEND=zookeeper ELECTOR_ZOOKEEPER_SERVERS=%s %s top %s; echo top has ended with status $?; exec cat", h.addr, binary, strings.Join(args, " "))
	s.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "60", command)
	h.Cleanup(func() { s.tmux("kill-server") })
	return s
}

func (s *tmuxScreen) tmux(args ...string) string {
	s.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", s.socket}, args...)...).CombinedOutput()
	require.NoError(s.t, err, "%v: %s", args, out)
	return string(out)
}

// waitForRow waits until one row of the screen contains all texts.
func (s *tmuxScreen) waitForRow(texts ...string) {
	s.t.Helper()
	text := ""
	for limit := time.Now().Add(patience); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
		text = s.tmux("capture-pane", "-p")
	rows:
		for row := range strings.Lines(text) {
			for _, part := range texts {
				if !strings.Contains(row, part) {
					continue rows
				}
			}
			return
		}
	}
	require.Fail(s.t, fmt.Sprintf("no row: %q", texts), "%s", text)
}

// TestTop_ShowsChanges checks in a terminal of tmux that changes of elections, and keys, change the screen of elector
// top.
func TestTop_ShowsChanges(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	screen := h.startTop("--under", "/jobs", "--interval", "200ms")
	screen.waitForRow("--under /jobs", "node does not exist")
	a := h.lead("a", graceful)
	b := h.follow("b", graceful)
	screen.waitForRow("1 election, 2 candidates")
	screen.waitForRow("> /jobs/one ", " a ", " 1")
	screen.waitForRow("1  a ", "0x", "latch-0000000000")
	screen.tmux("send-keys", "r")
	screen.waitForRow("y/n: request a to hand over /jobs/one")
	screen.tmux("send-keys", "y")
	screen.waitForRow("> /jobs/one ", " b ", " 1")
	screen.waitForRow("2  a ", "latch-0000000002")
	screen.waitForRow("/jobs/one  a has handed over")
	other := h.run("c", graceful, "--election", "/jobs/deep/two")
	screen.waitForRow("/jobs/deep/two ", " c ")

	h.srv.Blackhole(zktest.BothWays)
	screen.waitForRow("no answer for")
	screen.waitForRow("> /jobs/one ", "? b")
	h.srv.Heal()
	screen.waitForRow("2 elections, 3 candidates")
	screen.tmux("resize-window", "-x", "160", "-y", "50")
	screen.waitForRow(" | ", "/jobs/one", "answers again") // this row is to the right of the elections
	screen.tmux("send-keys", "/two", "Enter")
	screen.waitForRow(`2 elections, 3 candidates, 1 with "two"`)
	screen.tmux("send-keys", "Escape")
	screen.tmux("resize-window", "-x", "60", "-y", "20")
	screen.waitForRow("2 elections, 3 candidates")
	screen.tmux("send-keys", "?")
	screen.waitForRow("any key returns")
	screen.tmux("send-keys", "q")
	screen.waitForRow("top has ended with status 0")
	for _, p := range []*process{a, b, other} {
		p.terminate()
	}
}

// TestTop_RejectsInvalidArguments checks that elector top rejects invalid arguments, and an output that is not a
// terminal.
func TestTop_RejectsInvalidArguments(t *testing.T) {
	h := newZooKeeperHarness(t)
	for _, args := range [][]string{{}, {"--under", "/a", "/b"}, {"--interval", "1ms"}, {"--under", "jobs"}, {"jobs"}} {
		p := h.command("top", args...)
		require.Equal(t, cmdline.Usage, p.exitCode())
		switch {
		case len(args) == 0:
			p.waitForLog("elector: top needs a terminal")
		case args[len(args)-1] == "jobs":
			p.waitForLog("for example --")
		}
	}
}

// TestPoller_DistinguishesMissingElectionFromFailure checks that the poller of top reports an election that does not
// exist or has ended as missing, and reports only other errors as failures.
func TestPoller_DistinguishesMissingElectionFromFailure(t *testing.T) {
	failure := errors.New("connection lost")
	results := map[string]error{
		"/missing": leaderelection.ErrNoElection, "/ended": fmt.Errorf("%w", leaderelection.ErrElectionOver), "/failed": failure, "/listed": nil,
	}
	p := newPoller(backend{
		list: func(_ context.Context, election string) ([]candidateInfo, error) {
			return []candidateInfo{{Name: "a", ID: "/a"}}, results[election]
		},
		watch: func(context.Context, string) (<-chan observation, error) { return nil, failure },
	}, "", time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	p.startPolling(ctx, slices.Collect(maps.Keys(results)))
	got := map[string]top.Message{}
	for range results {
		switch m := (<-p.messages).(type) {
		case top.Missing:
			got[m.Election] = top.Missing{}
		case top.Failed:
			got[m.Election] = m.Err
		case top.Listed:
			got[m.Election] = m.Candidates
		}
	}
	stop()
	p.tasks.Wait()
	require.Equal(t, map[string]top.Message{
		"/missing": top.Missing{}, "/ended": top.Missing{}, "/failed": failure, "/listed": []top.Candidate{{Name: "a", ID: "/a"}},
	}, got)
}
