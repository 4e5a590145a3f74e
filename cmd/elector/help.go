package main

import "github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"

// The groups of flags in help texts.
const (
	groupElection = "Election"
	groupBackend  = "Backend " // followed by the name of the backend
	groupTLS      = "TLS"
	groupLogging  = "Logging"
)

// flagGroups is the order of the groups in help texts.
var flagGroups = []string{
	groupElection, groupBackend + "zookeeper", groupBackend + "etcd", groupBackend + "changefeed",
	groupBackend + "raftlog", groupTLS, groupLogging,
}

// withoutBackend is the annotation of a command that uses no backend. Its help text omits the flags of
// backends.
const withoutBackend = cmdline.WithoutCommon
