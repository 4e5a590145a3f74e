//go:build !race

package simulation

import "time"

// TestSimulation_DetectsDisabledChecks finds each disabled check within 50 runs. The command make seeds
// runs more seeds.
var defaults = runCounts{seeds: 50, faultTime: 16 * time.Second, replay: 2}
