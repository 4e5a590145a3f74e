//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestPrint_EscapesControlCharacters checks that elector escapes the names, values and IDs of candidates on output,
// so that they can neither control a terminal nor forge a line.
func TestPrint_EscapesControlCharacters(t *testing.T) {
	const hostile = "web-1\x1b]52;c;cm0=\x07\x1b[2J\nforged leads, token 99\u009b2J\u202e"
	leader := candidateInfo{Name: hostile, Value: hostile, ID: hostile}
	for name, print := range map[string]func(w io.Writer, asJSON bool) error{
		"status": func(w io.Writer, asJSON bool) error { return printStatus(w, hostile, []candidateInfo{leader}, asJSON) },
		"leader of --listen": func(w io.Writer, asJSON bool) error {
			rw := httptest.NewRecorder()
			writeJSON(rw, 200, leader)
			_, err := rw.Body.WriteTo(w)
			return err
		},
		"status, none": func(w io.Writer, asJSON bool) error { return printStatus(w, hostile, nil, asJSON) },
		"watch": func(w io.Writer, asJSON bool) error {
			return printObservation(w, hostile, observation{leader: &leader}, asJSON)
		},
	} {
		for _, asJSON := range []bool{false, true} {
			var out strings.Builder
			require.NoError(t, print(&out, asJSON))
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			want := 1
			if name == "status" && !asJSON {
				want = 2
			}
			require.Len(t, lines, want, name)
			for _, line := range lines {
				require.False(t, strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }), "%s: %q", name, line)
			}
		}
	}
	start(t, "status", "--config", "/no\x1b[2J\u009bfile").requireExit(cmdline.Usage, `open /no\x1b[2J\u009bfile: no such file`)
}

// TestStatusAndWatch_PrintLeaderAndOrder checks that status and watch print the leader, the order of the candidates
// and the times of the leaderships, and exit with the documented codes.
func TestStatusAndWatch_PrintLeaderAndOrder(t *testing.T) {
	h := newZooKeeperHarness(t)
	none := h.command("status", "--json")
	require.JSONEq(t, `{"election":"/jobs/one","leader":null,"candidates":[]}`, none.waitForOutput("{"))
	require.Equal(t, cmdline.NoLeader, none.exitCode(), "the election does not exist")
	require.Equal(t, cmdline.NoLeader, h.command("resign").exitCode())

	waiting := h.command("status", "--wait", "--json", "--timeout", patience.String())
	a := h.lead("a", graceful)
	require.Contains(t, waiting.waitForOutput("{"), `"leader":{"name":"a"`)
	require.Equal(t, cmdline.OK, waiting.exitCode())
	b := h.run("b", graceful)
	b.waitForLog(`msg="became follower"`)
	require.NotContains(t, b.log.Text(), "status changed", "a change of the role is logged twice")
	require.Equal(t, cmdline.OK, h.command("status", "--is-leader", "a").exitCode())
	require.Equal(t, cmdline.OtherLeader, h.command("status", "--is-leader", "b").exitCode())
	require.Equal(t, cmdline.NoLeader, h.command("status", "--wait", "--is-leader", "b", "--timeout", "1s").exitCode())
	elected := h.command("status", "--wait", "--is-leader", "b", "--timeout", patience.String())
	status := h.command("status", "--json")
	var s struct {
		Election   string
		Leader     candidateInfo
		Candidates []candidateInfo
	}
	require.NoError(t, json.Unmarshal([]byte(status.waitForOutput("{")), &s))
	require.Equal(t, cmdline.OK, status.exitCode())
	require.Equal(t, "/jobs/one", s.Election)
	require.Len(t, s.Candidates, 2)
	require.Equal(t, s.Leader, s.Candidates[0])
	require.Equal(t, "a", s.Leader.Name)
	require.Equal(t, "b", s.Candidates[1].Name)
	require.Greater(t, s.Candidates[1].Token, s.Leader.Token)
	require.WithinDuration(t, time.Now(), s.Leader.Joined, time.Minute)
	status = h.command("status")
	require.Contains(t, status.waitForOutput("leader"), " a ")
	require.Contains(t, status.waitForOutput("follower"), " b ")
	require.Equal(t, cmdline.OK, status.exitCode())

	watch, watchJSON := h.command("watch"), h.command("watch", "--json")
	var w struct {
		Time   time.Time
		Leader *candidateInfo
	}
	watch.waitForOutput(time.Now().UTC().Format("2006-"))
	require.NoError(t, json.Unmarshal([]byte(watchJSON.waitForOutput("{")), &w))
	require.Equal(t, s.Leader, *w.Leader)
	a.signal(syscall.SIGTERM)
	require.NoError(t, json.Unmarshal([]byte(watchJSON.waitForOutput("{")), &w))
	require.Equal(t, "b", w.Leader.Name)
	require.Equal(t, cmdline.OK, elected.exitCode())
	require.Equal(t, s.Candidates[1].Joined, w.Leader.Joined)
	require.WithinDuration(t, w.Time, w.Leader.LeadsSince, patience)
	require.Contains(t, watch.waitForOutput("20"), "b leads, token")
	b.waitForOutput("started")
	b.signal(syscall.SIGTERM)
	require.Contains(t, watch.waitForOutput("20"), "no leader")
	w.Leader = nil
	require.NoError(t, json.Unmarshal([]byte(watchJSON.waitForOutput("{")), &w))
	require.Nil(t, w.Leader)
	watch.terminate()

	status = h.command("status", "--json")
	require.JSONEq(t, `{"election":"/jobs/one","leader":null,"candidates":[]}`, status.waitForOutput("{"))
	require.Equal(t, cmdline.NoLeader, status.exitCode())
	require.Equal(t, cmdline.OK, h.command("delete").exitCode())
	require.Equal(t, cmdline.Permanent, watchJSON.exitCode(), "the election has ended")
}

// TestAwaitLeader_RetriesWhileLeaderMayAppear checks that awaitLeader, which implements status --wait, retries until
// it finds the requested leader, stops if no leader can appear any more, and returns the last result when its context
// is done.
func TestAwaitLeader_RetriesWhileLeaderMayAppear(t *testing.T) {
	type answer struct {
		places []candidateInfo
		err    error
	}
	a, b := candidateInfo{Name: "a", ID: "/e/1"}, candidateInfo{Name: "b", ID: "/e/2"}
	late, none := errors.New("late"), answer{err: leaderelection.ErrNoElection}
	for name, c := range map[string]struct {
		answers []answer // the answers to successive requests for the list; the last answer is repeated until ctx is done
		leader  string
		want    answer
		lists   int // the expected number of requests for the list
	}{
		"leader":             {[]answer{{places: []candidateInfo{a}}}, "", answer{places: []candidateInfo{a}}, 1},
		"later":              {[]answer{none, {}, {err: late}, {places: []candidateInfo{a}}}, "", answer{places: []candidateInfo{a}}, 4},
		"this leader":        {[]answer{{places: []candidateInfo{a, b}}, {places: []candidateInfo{b}}}, "b", answer{places: []candidateInfo{b}}, 2},
		"this ID":            {[]answer{{places: []candidateInfo{a, b}}, {places: []candidateInfo{b, a}}}, "2", answer{places: []candidateInfo{b, a}}, 2},
		"another leader":     {[]answer{{places: []candidateInfo{a, b}}}, "b", answer{places: []candidateInfo{a, b}}, 3},
		"no leader":          {[]answer{none}, "", answer{}, 3},
		"no answer":          {[]answer{{err: late}}, "", answer{err: late}, 3},
		"no answer later":    {[]answer{none, {err: late}}, "", answer{err: late}, 4},
		"retry is pointless": {[]answer{none, {err: leaderelection.ErrElectionOver}}, "", answer{err: leaderelection.ErrElectionOver}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			lists := 0
			places, err := awaitLeader(ctx, func(context.Context) ([]candidateInfo, error) {
				lists++
				if lists == len(c.answers)+2 {
					cancel()
				}
				next := c.answers[min(lists, len(c.answers))-1]
				return next.places, next.err
			}, time.Nanosecond, c.leader)
			require.Equal(t, c.want, answer{places, err})
			if c.lists < len(c.answers)+2 {
				require.Equal(t, c.lists, lists)
			}
		})
	}
}

// TestPrintStatus_ShortensLongCells checks that printStatus shortens long names and values, so that one candidate
// with a long name does not make every line of the table long.
func TestPrintStatus_ShortensLongCells(t *testing.T) {
	candidates := slices.Repeat([]candidateInfo{{Name: "short", ID: "1"}}, 10)
	candidates[3].Name = strings.Repeat("\x1b", 1<<20)
	candidates[4].Value = strings.Repeat("ü", 1000)
	candidates[5].Name = "host-5.example.org"
	var out strings.Builder
	require.NoError(t, printStatus(&out, "/jobs", candidates, false))
	require.Less(t, out.Len(), 11*1000)
	require.Contains(t, out.String(), "host-5.example.org ")
	require.Contains(t, out.String(), strings.Repeat("ü", maxCell)+"…")
}
