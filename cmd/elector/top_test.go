//go:build unix

package main

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// screen is elector top in a terminal of tmux.
type screen struct {
	t      *testing.T
	socket string
}

// top starts elector top on a terminal of 80 columns and 24 rows.
func (e *electors) top(args ...string) *screen {
	e.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		e.Skip("there is no tmux")
	}
	s := &screen{e.T, e.TempDir() + "/tmux"}
	// The shell says how it ended: tmux (3.3a) does not always notice that its child has.
	command := fmt.Sprintf("env ELECTOR_BACKEND=zookeeper ELECTOR_ZOOKEEPER_SERVERS=%s %s top %s; echo top has ended with status $?; exec cat", e.addr, built, strings.Join(args, " "))
	s.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", command)
	e.Cleanup(func() { s.tmux("kill-server") })
	return s
}

func (s *screen) tmux(args ...string) string {
	s.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", s.socket}, args...)...).CombinedOutput()
	require.NoError(s.t, err, "%v: %s", args, out)
	return string(out)
}

// shows waits until there is a row that contains all texts.
func (s *screen) shows(texts ...string) {
	s.t.Helper()
	text := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
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
	require.Fail(s.t, fmt.Sprintf("never shown: %q", texts), "%s", text)
}

func TestTop(t *testing.T) {
	t.Parallel()
	e := newElectors(t)
	top := e.top("--under", "/jobs", "--interval", "200ms")
	top.shows("--under /jobs", "node does not exist")
	a := e.run("a", polite)
	a.says("started")
	b := e.run("b", polite)
	b.logs("follower")
	top.shows("1 election, 2 candidates")
	top.shows("> /jobs/one ", " a ", " 1")
	top.shows("1  a ", "0x", "latch-0000000000")
	top.tmux("send-keys", "r")
	top.shows("y/n: request a to hand over /jobs/one")
	top.tmux("send-keys", "y")
	top.shows("> /jobs/one ", " b ", " 1")
	top.shows("2  a ", "latch-0000000002")
	top.shows("/jobs/one  a has handed over")
	other := e.run("c", polite, "--election", "/jobs/deep/two")
	top.shows("/jobs/deep/two ", " c ")

	e.srv.Blackhole(zktest.BothWays)
	top.shows("no answer for")
	top.shows("> /jobs/one ", "? b")
	e.srv.Heal()
	top.shows("2 elections, 3 candidates")
	top.tmux("resize-window", "-x", "160", "-y", "50")
	top.shows(" | ", "/jobs/one", "answers again") // beside the elections
	top.tmux("send-keys", "/two", "Enter")
	top.shows(`2 elections, 3 candidates, 1 with "two"`)
	top.tmux("send-keys", "Escape")
	top.tmux("resize-window", "-x", "60", "-y", "20")
	top.shows("2 elections, 3 candidates")
	top.tmux("send-keys", "?")
	top.shows("any key returns")
	top.tmux("send-keys", "q")
	top.shows("top has ended with status 0")
	for _, p := range []*process{a, b, other} {
		p.signal(syscall.SIGTERM)
		require.Equal(t, exitOK, p.exit())
	}
}

func TestTopRefuses(t *testing.T) {
	e := newElectors(t)
	for _, args := range [][]string{{}, {"--under", "/a", "/b"}, {"--interval", "1ms"}, {"--under", "jobs"}, {"jobs"}} {
		p := e.do("top", args...)
		require.Equal(t, exitUsage, p.exit())
		switch {
		case len(args) == 0:
			p.logs("elector: top needs a terminal")
		case args[len(args)-1] == "jobs":
			p.logs("for example --")
		}
	}
}
