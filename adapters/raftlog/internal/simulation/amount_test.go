//go:build !race

package simulation

import "time"

var defaults = runCounts{seeds: 200, faultTime: 16 * time.Second, scenario: 100, replay: 4}
