// Package changefeed measures elections by changefeed on every store whose server is installed: the
// time from a write to its notification, the durations of a hand-over and a fail-over, and the number
// of requests that followers send to the store. It consists of benchmarks, which print a table:
//
//	go test -run '^$' -bench . ./changefeed
//
// The results are in docs/changefeed.md.
package changefeed
