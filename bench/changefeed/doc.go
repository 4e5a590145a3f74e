// Package changefeed measures elections by changefeed on every store there is a server for: the
// time from a write to its notification, the durations of a hand-over and a fail-over, and how
// many requests the followers send to the store. It consists of benchmarks, which print a table
// at the end:
//
//	go test -run '^$' -bench . ./changefeed
//
// The results are in docs/changefeed.md.
package changefeed
