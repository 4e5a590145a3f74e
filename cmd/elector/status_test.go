//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// do runs one of the other commands on the server.
func (e *electors) do(command string, args ...string) *process {
	return start(e.T, []string{"ELECTOR_BACKEND=zookeeper", "ELECTOR_ZOOKEEPER_SERVERS=" + e.addr, "ELECTOR_ELECTION=/jobs/one"},
		append([]string{command}, args...)...)
}

type candidate struct {
	Name, ID string
	Token    int64
	Joined   time.Time
	// LeadsSince is when it became the leader.
	LeadsSince time.Time `json:"leads_since"`
}

func TestStatusAndWatch(t *testing.T) {
	e := newElectors(t)
	none := e.do("status", "--json")
	require.JSONEq(t, `{"election":"/jobs/one","leader":null,"candidates":[]}`, none.says("{"))
	require.Equal(t, exitNobody, none.exit(), "the election does not exist")
	require.Equal(t, exitNobody, e.do("resign").exit())

	waiting := e.do("status", "--wait", "--json", "--timeout", patience.String())
	a := e.run("a", polite)
	a.says("started")
	require.Contains(t, waiting.says("{"), `"leader":{"name":"a"`)
	require.Equal(t, exitOK, waiting.exit())
	b := e.run("b", polite)
	b.logs(`msg="became follower"`)
	require.NotContains(t, b.log.text(), "status changed", "a change is logged twice")
	require.Equal(t, exitOK, e.do("status", "--is-leader", "a").exit())
	require.Equal(t, exitOther, e.do("status", "--is-leader", "b").exit())
	require.Equal(t, exitOther, e.do("status", "--wait", "--is-leader", "b", "--timeout", "1s").exit())
	turn := e.do("status", "--wait", "--is-leader", "b", "--timeout", patience.String())
	status := e.do("status", "--json")
	var s struct {
		Election   string
		Leader     candidate
		Candidates []candidate
	}
	require.NoError(t, json.Unmarshal([]byte(status.says("{")), &s))
	require.Equal(t, exitOK, status.exit())
	require.Equal(t, "/jobs/one", s.Election)
	require.Len(t, s.Candidates, 2)
	require.Equal(t, s.Leader, s.Candidates[0])
	require.Equal(t, "a", s.Leader.Name)
	require.Equal(t, "b", s.Candidates[1].Name)
	require.Greater(t, s.Candidates[1].Token, s.Leader.Token)
	require.WithinDuration(t, time.Now(), s.Leader.Joined, time.Minute)
	status = e.do("status")
	require.Contains(t, status.says("leader"), " a ")
	require.Contains(t, status.says("follower"), " b ")
	require.Equal(t, exitOK, status.exit())

	watch, lines := e.do("watch"), e.do("watch", "--json")
	var w struct {
		Time   time.Time
		Leader *candidate
	}
	watch.says(time.Now().UTC().Format("2006-"))
	require.NoError(t, json.Unmarshal([]byte(lines.says("{")), &w))
	require.Equal(t, s.Leader, *w.Leader)
	a.signal(syscall.SIGTERM)
	require.NoError(t, json.Unmarshal([]byte(lines.says("{")), &w))
	require.Equal(t, "b", w.Leader.Name)
	require.Equal(t, exitOK, turn.exit())
	require.Equal(t, s.Candidates[1].Joined, w.Leader.Joined)
	require.WithinDuration(t, w.Time, w.Leader.LeadsSince, patience)
	require.Contains(t, watch.says("20"), "b leads, token")
	b.says("started")
	b.signal(syscall.SIGTERM)
	require.Contains(t, watch.says("20"), "no leader")
	w.Leader = nil
	require.NoError(t, json.Unmarshal([]byte(lines.says("{")), &w))
	require.Nil(t, w.Leader)
	watch.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, watch.exit())

	status = e.do("status", "--json")
	require.JSONEq(t, `{"election":"/jobs/one","leader":null,"candidates":[]}`, status.says("{"))
	require.Equal(t, exitNobody, status.exit())
	require.Equal(t, exitOK, e.do("delete").exit())
	require.Equal(t, exitBackend, lines.exit(), "the election has ended")
}

func TestAwaitLeader(t *testing.T) {
	type answer struct {
		places []place
		err    error
	}
	a, b := place{Name: "a", ID: "/e/1"}, place{Name: "b", ID: "/e/2"}
	late, none := errors.New("late"), answer{err: leaderelection.ErrNoElection}
	for name, c := range map[string]struct {
		answers []answer // the last one repeatedly, until the time is over
		leader  string
		want    answer
		lists   int // the number of requests
	}{
		"leader":              {[]answer{{places: []place{a}}}, "", answer{places: []place{a}}, 1},
		"later":               {[]answer{none, {}, {err: late}, {places: []place{a}}}, "", answer{places: []place{a}}, 4},
		"this leader":         {[]answer{{places: []place{a, b}}, {places: []place{b}}}, "b", answer{places: []place{b}}, 2},
		"this ID":             {[]answer{{places: []place{a, b}}, {places: []place{b, a}}}, "2", answer{places: []place{b, a}}, 2},
		"another leader":      {[]answer{{places: []place{a, b}}}, "b", answer{places: []place{a, b}}, 3},
		"no leader":           {[]answer{none}, "", answer{}, 3},
		"no answer":           {[]answer{{err: late}}, "", answer{err: late}, 3},
		"no answer any more":  {[]answer{none, {err: late}}, "", answer{err: late}, 4},
		"retry has no chance": {[]answer{none, {err: leaderelection.ErrElectionOver}}, "", answer{err: leaderelection.ErrElectionOver}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			lists := 0
			places, err := awaitLeader(ctx, func(context.Context) ([]place, error) {
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

func TestEndAndDelete(t *testing.T) {
	e := newElectors(t)
	none := e.do("end")
	require.Equal(t, exitFailed, none.exit())
	none.logs("/jobs/one: there is no such election on zookeeper")
	require.Equal(t, exitOK, e.do("delete").exit())
	for _, command := range []string{"end", "delete"} {
		a := e.run("a", polite)
		a.says("started")
		require.Equal(t, exitOK, e.do(command).exit())
		require.Equal(t, exitBackend, a.exit())
		require.NotContains(t, e.srv.Tree(), "one")
	}
}

func TestNobodyAnswersCommands(t *testing.T) {
	e := newElectors(t)
	e.srv.Stop()
	for _, command := range []string{"status", "status --wait", "end", "delete"} {
		args := append(strings.Fields(command), "--timeout", "50ms")
		p := e.do(args[0], args[1:]...)
		require.Equal(t, exitFailed, p.exit(), command)
		p.logs("no answer from zookeeper at " + e.addr + " within 50ms: ")
	}
	w := e.do("watch")
	w.logs("failed to connect")
	w.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, w.exit())
}

func TestBackendsThatCannot(t *testing.T) {
	for command, backends := range map[string]string{
		"status": "changefeed, etcd, raftlog, zookeeper", "watch": "changefeed, etcd, raftlog, zookeeper",
		"end": "changefeed, etcd, zookeeper", "delete": "changefeed, etcd, zookeeper", "resign": "etcd, raftlog, zookeeper",
	} {
		p := start(t, []string{"ELECTOR_BACKEND=console"}, command)
		require.Equal(t, exitUsage, p.exit())
		p.logs(command + ": unsupported operation of backend console, only of " + backends)
	}
}

func TestDevServer(t *testing.T) {
	srv := start(t, nil, "dev-server", "--listen", "127.0.0.1:0")
	addr := srv.says("listening on ")[len("listening on "):]
	taken := start(t, nil, "dev-server", "--listen", addr)
	require.Equal(t, exitFailed, taken.exit())
	p := start(t, nil, "run", "--backend", "zookeeper", "--zookeeper-servers", addr, "--", "echo", "it leads")
	p.says("it leads")
	require.Equal(t, exitOK, p.exit())
	srv.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, srv.exit())
}

// A permission error names the setting that has the credentials.
func TestCredentialsAreNamed(t *testing.T) {
	e := newElectors(t)
	t.Setenv("ELECTOR_ZOOKEEPER_AUTH", "me:secret")
	a := e.run("a", polite)
	a.says("started")
	t.Setenv("ELECTOR_ZOOKEEPER_AUTH", "")
	p := e.do("end")
	require.Equal(t, exitBackend, p.exit())
	p.logs("set ELECTOR_ZOOKEEPER_AUTH (--zookeeper-auth)")
	t.Setenv("ELECTOR_ZOOKEEPER_AUTH", "me:wrong")
	p = e.do("end")
	require.Equal(t, exitBackend, p.exit())
	p.logs("check the credentials in ELECTOR_ZOOKEEPER_AUTH (--zookeeper-auth)")
}
