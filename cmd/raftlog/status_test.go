//go:build unix

package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestReport_TableShowsLeader checks that the table of a report contains the leader and all values without
// control characters, and that findLeader selects the leader of the newest term.
func TestReport_TableShowsLeader(t *testing.T) {
	a, b := api.Peer{ID: "a", Addr: "h:1"}, api.Peer{ID: "b", Addr: "h:2"}
	r := report{Cluster: "c\x1b", Leader: &a, Peers: []peerReport{
		{Peer: a, Info: &api.Info{Peer: a, Role: "leader", Leader: a, Term: 3, CommitIndex: 12, SnapshotIndex: 5, SnapshotSize: 99, Fault: "x\ny"}},
		{Peer: b, Error: "asking b: dial: connection refused"},
	}}
	text := r.formatTable()
	require.Equal(t, 4, strings.Count(text, "\n"), text)
	require.Contains(t, text, "leader a")
	require.Contains(t, text, "5 (99 B)")
	require.Contains(t, text, "connection refused")
	require.NotContains(t, text, "\x1b")
	var drawn strings.Builder
	require.NoError(t, r.print(&drawn, false, true))
	require.True(t, strings.HasPrefix(drawn.String(), cursorHome))
	require.True(t, strings.HasSuffix(drawn.String(), clearBelow))
	require.Equal(t, api.Peer{}, findLeader(nil))
	require.Equal(t, b, findLeader([]client.PeerInfo{
		{Info: api.Info{Leader: a, Term: 1}},
		{Info: api.Info{Leader: b, Term: 2}},
		{Info: api.Info{Term: 3}},
		{Err: io.EOF, Info: api.Info{Leader: a, Term: 9}},
	}))
}

// TestShortCause_KeepsRemedy checks that shortCause returns the last part of an error, and in addition the
// remedy if a peer has refused the client.
func TestShortCause_KeepsRemedy(t *testing.T) {
	require.Equal(t, "connection refused", shortCause("asking a: dial tcp h:1: connection refused"))
	require.Equal(t, "it belongs to another cluster: check its name", shortCause("status of peer a: refused: it belongs to another cluster: check its name"))
}

// TestReport_CheckReturnsExitCode checks that check returns one exit code if no peer has answered, and a different
// one if the peers that have answered have no leader.
func TestReport_CheckReturnsExitCode(t *testing.T) {
	a := api.Peer{ID: "a", Addr: "h:1"}
	answer, refusal := peerReport{Peer: a, Info: &api.Info{Peer: a}}, peerReport{Peer: a, Error: "refused: the secret differs"}
	for _, c := range []struct {
		report report
		code   int
		text   string
	}{
		{report{Leader: &a, Peers: []peerReport{answer, refusal}}, 0, ""},
		{report{Peers: []peerReport{refusal, answer}}, cmdline.NoLeader, "no peer that has answered is the leader, and another peer has not answered: refused: the secret differs"},
		{report{Peers: []peerReport{answer}}, cmdline.NoLeader, "there is no leader"},
		{report{Peers: []peerReport{refusal, refusal}}, cmdline.Failed, "no peer has answered: refused: the secret differs"},
		{report{}, cmdline.Failed, "no peer has answered: no peer is known"},
	} {
		err := c.report.check()
		require.Equal(t, c.code, exitCode(err))
		if c.text != "" {
			require.EqualError(t, err, c.text)
		}
	}
}
