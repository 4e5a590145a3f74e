//go:build raftlog_controls

package simulation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// TestSimulation_DetectsDisabledChecks checks that the simulation reports a violation if a safety check
// is disabled.
func TestSimulation_DetectsDisabledChecks(t *testing.T) {
	disable := func(c replica.Check) func(*plan) {
		return func(p *plan) { p.disabled = replica.Disable(c) }
	}
	trustAll := func(p *plan) { p.trustAll = true }
	withoutSyncs := func(p *plan) { p.syncs = false }
	for _, c := range []struct {
		name     string
		seeds    uint64         // the maximum number of runs
		scenario func(*harness) // the scenario of each run; nil for random faults
		disable  func(*plan)
		found    string // a part of the expected violation
	}{
		{"vote hold", 50, voterRestarts, disable(replica.CheckVoteHold), "at the same time"},
		{"lease", 20, nil, disable(replica.CheckLease), "at the same time"},
		{"deduplication", 20, nil, disable(replica.CheckDeduplication), "is applied by entry"},
		{"forget", 50, forgottenWhilePaused, disable(replica.CheckForget), "at the same time"},
		{"directory lost", 5, directoryLost, trustAll, "without entry"},
		{"log lost", 5, logLost, trustAll, "without entry"},
		{"second configuration", 5, secondConfiguration, trustAll, "another peer has applied"},
		{"history differs", 5, historyDiffers, disable(replica.CheckAgreement), "continues with another history"},
		{"fsync", 20, nil, withoutSyncs, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := uint64(1); seed <= c.seeds; seed++ {
				p := randomPlan(seed)
				if c.scenario != nil {
					p = scenarioPlan(seed, c.scenario)
				}
				c.disable(&p)
				if _, err := runPlan(t, p, nil); err != nil {
					t.Logf("found with seed %d: %v", seed, err)
					require.ErrorContains(t, err, c.found)
					return
				}
			}
			t.Fatalf("not found in %d runs", c.seeds)
		})
	}
}
