//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestResign: the leader ends what it runs, then the next one leads, and the former
// leader stands behind.
func TestResign(t *testing.T) {
	e := newElectors(t)
	none := e.do("resign")
	require.Equal(t, exitNobody, none.exit(), "there is no election")

	end := []string{"--leader-end-command", `sleep 0.2; echo "$NAME end $ELECTOR_ROLE" >> "$FILE"`}
	const program = `trap 'echo "$NAME ends" >> "$FILE"; exit 0' TERM; echo "$NAME" >> "$FILE"; echo started; while :; do sleep 0.01; done`
	a := e.run("a", program, end...)
	a.says("started")
	b := e.run("b", program, end...)
	b.logs("follower")
	resign := e.do("resign")
	require.Regexp(t, `^a has handed over; b leads, token [1-9][0-9]*$`, resign.says("a has"))
	require.Equal(t, exitOK, resign.exit())
	b.says("started")
	a.logs("follower") // again
	require.Equal(t, []string{"a", "a ends", "a end leader", "b"}, e.deeds())

	// By name, by the id and by its last element: each goes to the end of the line.
	status := e.do("status")
	line := strings.Fields(status.says("follower"))
	require.Equal(t, exitOK, status.exit())
	require.Equal(t, "a", line[1])
	id := line[len(line)-1]
	for _, name := range []string{"a", id, id[strings.LastIndex(id, "/")+1:]} {
		resign = e.do("step-down", "--id", name)
		if name == "a" {
			require.Regexp(t, `^a has left its position; b leads, token [1-9][0-9]*$`, resign.says("a has"))
			require.Equal(t, exitOK, resign.exit())
			continue
		}
		require.Equal(t, exitNobody, resign.exit(), "it has another place by now")
		resign.logs("is not a candidate in /jobs/one")
	}

	b.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, b.exit())
	a.says("started")
	resign = e.do("resign")
	require.Regexp(t, `^a has handed over; it leads again, token [1-9][0-9]*: no other candidate was waiting$`, resign.says("a has"))
	require.Equal(t, exitOK, resign.exit())
	a.says("started")
	a.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, a.exit())
	none = e.do("resign")
	require.Equal(t, exitNobody, none.exit())
	none.logs("there are no candidates in /jobs/one")
}

// TestResignTakesTooLong: a leader whose end takes longer than the command waits.
func TestResignTakesTooLong(t *testing.T) {
	t.Parallel()
	e := newElectors(t)
	a := e.run("a", polite, "--leader-end-command", `echo ending; while [ ! -e "$FILE.done" ]; do sleep 0.02; done`)
	a.says("started")
	resign := e.do("resign", "--timeout", "3s")
	a.says("ending")
	require.Equal(t, exitStays, resign.exit())
	resign.logs("a was requested to resign and has not left")
	require.NoError(t, touch(e.file+".done"))
	a.says("started") // what it has heard goes on
	a.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, a.exit())
}

func TestResignTwoOfOneName(t *testing.T) {
	e := newElectors(t)
	a := e.run("twin", polite)
	a.says("started")
	b := e.run("twin", polite)
	b.logs("follower")
	resign := e.do("resign", "--id", "twin")
	require.Equal(t, exitUsage, resign.exit())
	resign.logs("2 candidates have that name")
}

func TestResignEndsWithASignal(t *testing.T) {
	e := newElectors(t)
	a := e.run("a", polite, "--leader-end-command", `echo ending; sleep 100`, "--end-timeout", "1m", "--grace", "10ms")
	a.says("started")
	resign := e.do("resign")
	a.says("ending")
	began := time.Now()
	resign.signal(syscall.SIGTERM)
	require.Equal(t, exitStays, resign.exit())
	require.Less(t, time.Since(began), patience)
	conn, _, err := e.srv.Connect(session)
	require.NoError(t, err)
	data, _, err := conn.Get("/jobs/one")
	require.NoError(t, err)
	require.Empty(t, data, "the request is left")
}
