package simulation

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestScenarios plays each scenario often.
func TestScenarios(t *testing.T) {
	for name, scenario := range map[string]func(*world){
		"restart of a voter": restartOfVoter, "a leader forgets": leaderForgets, "a follower forgets": followerForgets, "ended unaware": endedUnaware, "forgotten unaware": forgottenUnaware, "disk lost": diskLost,
		"disk stands": diskStands, "directory lost": directoryLost, "log lost": logLost, "second configuration": secondConfiguration,
		"history differs": historyDiffers,
	} {
		t.Run(name, func(t *testing.T) {
			for seed := *first; seed < *first+uint64(usual.scenario); seed++ {
				_, err := play(t, calmPlan(seed, scenario), tracer(t))
				require.NoError(t, err)
			}
		})
	}
}
