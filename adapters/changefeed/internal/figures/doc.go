// Package figures measures elections by changefeed on every store there is a server for:
// how soon a feed tells of a write, how long a hand-over and a fail-over take, and what
// the store is asked for however many follow. It has tests only, and these are run by
//
//	go test -run '^$' -bench . ./adapters/changefeed/internal/figures
//
// which prints a table at the end. What it has shown is in docs/changefeed.md.
package figures
