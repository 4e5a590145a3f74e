//go:build !race

package simulation

import "time"

// With 50 seeds, TestSimulation_DetectsDisabledChecks detects each disabled check. The command make seeds runs
// more seeds.
var defaults = runCounts{seeds: 50, faultTime: 16 * time.Second, replay: 2}
