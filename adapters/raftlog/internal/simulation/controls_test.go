//go:build raftlog_controls

package simulation

import (
	"testing"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/stretchr/testify/require"
)

// TestControls: with each protection switched off, the simulation finds that it is.
func TestControls(t *testing.T) {
	for _, c := range []struct {
		name  string
		seeds uint64 // within which it is found
		plan  func(seed uint64) plan
		found string // by what
	}{
		{"vote hold", 50, func(seed uint64) plan {
			p := calmPlan(seed, restartOfVoter)
			p.disabled = replica.Disable(replica.CheckVoteHold)
			return p
		}, "at the same time"},
		{"lease", 20, func(seed uint64) plan {
			p := planOf(seed)
			p.disabled = replica.Disable(replica.CheckLease)
			return p
		}, "at the same time"},
		{"deduplication", 20, func(seed uint64) plan {
			p := planOf(seed)
			p.disabled = replica.Disable(replica.CheckDeduplication)
			return p
		}, "is applied by entry"},
		{"forget", 50, func(seed uint64) plan {
			p := calmPlan(seed, forgottenUnaware)
			p.disabled = replica.Disable(replica.CheckForget)
			return p
		}, "at the same time"},
		{"directory lost", 5, func(seed uint64) plan {
			p := calmPlan(seed, directoryLost)
			p.believes = true
			return p
		}, "without entry"},
		{"log lost", 5, func(seed uint64) plan {
			p := calmPlan(seed, logLost)
			p.believes = true
			return p
		}, "without entry"},
		{"second configuration", 5, func(seed uint64) plan {
			p := calmPlan(seed, secondConfiguration)
			p.believes = true
			return p
		}, "another peer has applied"},
		{"history differs", 5, func(seed uint64) plan {
			p := calmPlan(seed, historyDiffers)
			p.disabled = replica.Disable(replica.CheckAgreement)
			return p
		}, "goes on with another history"},
		{"fsync", 20, func(seed uint64) plan {
			p := planOf(seed)
			p.fsync = false
			return p
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := uint64(1); seed <= c.seeds; seed++ {
				if _, err := play(t, c.plan(seed), nil); err != nil {
					t.Logf("found with seed %d: %v", seed, err)
					require.ErrorContains(t, err, c.found)
					return
				}
			}
			t.Fatalf("not found in %d runs", c.seeds)
		})
	}
}
