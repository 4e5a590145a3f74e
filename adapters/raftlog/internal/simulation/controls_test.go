//go:build raftlog_controls

package simulation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// TestControls fails if the simulation does not detect that a safety check is disabled.
func TestControls(t *testing.T) {
	for _, c := range []struct {
		name  string
		seeds uint64 // the maximum number of runs
		plan  func(seed uint64) plan
		found string // a part of the error
	}{
		{"vote hold", 50, func(seed uint64) plan {
			p := scenarioPlan(seed, voterRestarts)
			p.disabled = replica.Disable(replica.CheckVoteHold)
			return p
		}, "at the same time"},
		{"lease", 20, func(seed uint64) plan {
			p := randomPlan(seed)
			p.disabled = replica.Disable(replica.CheckLease)
			return p
		}, "at the same time"},
		{"deduplication", 20, func(seed uint64) plan {
			p := randomPlan(seed)
			p.disabled = replica.Disable(replica.CheckDeduplication)
			return p
		}, "is applied by entry"},
		{"forget", 50, func(seed uint64) plan {
			p := scenarioPlan(seed, forgottenWhilePaused)
			p.disabled = replica.Disable(replica.CheckForget)
			return p
		}, "at the same time"},
		{"directory lost", 5, func(seed uint64) plan {
			p := scenarioPlan(seed, directoryLost)
			p.trustAll = true
			return p
		}, "without entry"},
		{"log lost", 5, func(seed uint64) plan {
			p := scenarioPlan(seed, logLost)
			p.trustAll = true
			return p
		}, "without entry"},
		{"second configuration", 5, func(seed uint64) plan {
			p := scenarioPlan(seed, secondConfiguration)
			p.trustAll = true
			return p
		}, "another peer has applied"},
		{"history differs", 5, func(seed uint64) plan {
			p := scenarioPlan(seed, historyDiffers)
			p.disabled = replica.Disable(replica.CheckAgreement)
			return p
		}, "continues with another history"},
		{"fsync", 20, func(seed uint64) plan {
			p := randomPlan(seed)
			p.syncs = false
			return p
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := uint64(1); seed <= c.seeds; seed++ {
				if _, err := runPlan(t, c.plan(seed), nil); err != nil {
					t.Logf("found with seed %d: %v", seed, err)
					require.ErrorContains(t, err, c.found)
					return
				}
			}
			t.Fatalf("not found in %d runs", c.seeds)
		})
	}
}
