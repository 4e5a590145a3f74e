//go:build race

package simulation

import "time"

// With the race detector, runs take 13 times longer and find little, because a run has only one
// goroutine. So fewer runs are the default.
var defaults = runCounts{seeds: 14, faultTime: 4 * time.Second, replay: 1}
