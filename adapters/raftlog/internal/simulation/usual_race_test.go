//go:build race

package simulation

import "time"

// The race detector makes all of it 13 times slower, and there is one goroutine to look at.
var usual = amount{seeds: 14, storm: 4 * time.Second, scenario: 8, replay: 1}
