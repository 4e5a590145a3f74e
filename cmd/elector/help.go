package main

import "github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"

// The groups of flags in help texts, in the order in which they are printed.
const (
	groupElection = "Election"
	groupBackend  = "Backend " // and its name
	groupTLS      = "TLS"
	groupLogging  = "Logging"
)

var flagGroups = []string{
	groupElection, groupBackend + "zookeeper", groupBackend + "etcd", groupBackend + "changefeed",
	groupBackend + "raftlog", groupTLS, groupLogging,
}

// withoutBackend is the annotation of a command that uses no backend: the flags of backends are
// not in its help text.
const withoutBackend = cmdline.WithoutCommon
