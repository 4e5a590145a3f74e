package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// smoke is short: figures are worth nothing.
func smoke(t *testing.T, only string) settings {
	dir := t.TempDir()
	if err := onDisk(dir); err != nil {
		t.Skip(err)
	}
	return settings{
		rounds: 1, spell: spell{lead: 20 * time.Millisecond, length: 200 * time.Millisecond}, clients: []int{1},
		failOvers: 1, only: regexp.MustCompile(only), dir: dir, seed: 1, timeouts: quick, syncs: 10,
	}
}

// TestEveryContestant shows that all of them commit updates, and elect another leader.
func TestEveryContestant(t *testing.T) {
	s := smoke(t, "")
	r, err := run(t.Context(), s, peers())
	require.NoError(t, err)
	require.Len(t, r.Series, 1+len(peers()))
	for _, line := range r.Series {
		require.Len(t, line.Figures, 1)
		f := line.Figures[0]
		require.Positive(t, f.Rate, line.Name)
		require.Positive(t, f.P50, line.Name)
		require.GreaterOrEqual(t, f.P99, f.P50, line.Name)
	}
	require.Len(t, r.FailOvers, 2, "one of each library")
	for _, line := range r.FailOvers {
		require.Greater(t, line.Times[0], 50.0, "%s: nobody has handed over", line.Name)
	}
	left, err := os.ReadDir(s.dir)
	require.NoError(t, err)
	require.Empty(t, left, "directories are removed")

	name := filepath.Join(s.dir, "figures.json")
	require.NoError(t, r.writeJSON(name))
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	var again report
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, r, &again)
}

// forgetful acknowledges what it does not apply.
type forgetful struct{ keeps, leader bool }

func (forgetful) name() string     { return "forgetful" }
func (forgetful) settings() string { return "none" }
func (f forgetful) start(context.Context, string, timeouts) (cluster, error) {
	return f, nil
}
func (f forgetful) leads(int) bool { return f.leader }
func (f forgetful) propose(context.Context, int, []byte) error {
	time.Sleep(time.Millisecond)
	return nil
}

func (f forgetful) applied(node int) uint64 {
	if f.keeps || node != 2 {
		return 1 << 40
	}
	return 0
}
func (forgetful) halt(int) error { return nil }
func (forgetful) stop() error    { return nil }

// TestLostUpdatesAreNoFigures: what was acknowledged must be at every node.
func TestLostUpdatesAreNoFigures(t *testing.T) {
	s := smoke(t, "forgetful.*clients")
	_, err := run(t.Context(), s, []contestant{forgetful{keeps: true, leader: true}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = run(ctx, s, []contestant{forgetful{leader: true}})
	require.ErrorContains(t, err, "node 2 has applied 0 updates")
	require.ErrorContains(t, err, "that were acknowledged")
}

// TestNoLeader: a cluster without one does not hang.
func TestNoLeader(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := run(ctx, smoke(t, "forgetful.*clients"), []contestant{forgetful{keeps: true}})
	require.ErrorContains(t, err, "no node leads")
}
