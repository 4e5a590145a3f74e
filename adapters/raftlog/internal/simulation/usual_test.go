//go:build !race

package simulation

import "time"

var usual = amount{seeds: 200, storm: 16 * time.Second, scenario: 100, replay: 4}
