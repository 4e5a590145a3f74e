// Command mutation removes one safety check of the library at a time and runs the
// tests that must notice.
//
// A test suite is only as good as the mistakes that it finds. Each row of the table
// (the files mutants_*.go) is a mutant: an edit that breaks one rule of the library, and
// the tests that fail without this rule. Nothing in the working tree is changed: the edited
// file is passed to the compiler as an overlay, in GOFLAGS.
//
// It runs in the directory tools, with GOWORK=off:
//
//	go run ./mutation              # all mutants
//	go run ./mutation -run line    # those whose names match
//	go run ./mutation -list        # print the table
//
// The command fails if a mutant survives, does not build, or makes a test hang instead of
// fail. Before it runs a mutant it checks that the tests pass without the edit. go test
// checks that every edit of the table still applies, so that a change of the code and a
// change of its mutants are one commit.
package main
