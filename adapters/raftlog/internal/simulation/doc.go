// Package simulation plays clusters of whole peers in virtual time: the core, the log on a
// disk that loses power, snapshot files, the tables and a state machine are those of the
// product; the network, the clocks, the disk's speed and the users are the simulation's.
// Everything that happens follows from one seed, so that whatever goes wrong can be played
// again.
//
// All of it is test code: see world_test.go for how time passes, weather_test.go for what
// goes wrong, truth_test.go for what must be true at every moment, and calm_test.go for what
// must become true once nothing goes wrong any more.
package simulation
