//go:build race

package simulation

import "time"

// The race detector makes runs 13 times slower, and has little to find in one goroutine.
var defaults = runCounts{seeds: 14, faultTime: 4 * time.Second, replay: 1}
