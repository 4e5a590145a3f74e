//go:build race

package simulation

import "time"

// Fewer runs are the default with the race detector: a run takes 13 times longer with it, and finds few races,
// because it has only one goroutine.
var defaults = runCounts{seeds: 14, faultTime: 4 * time.Second, replay: 1}
