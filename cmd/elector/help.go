package main

import "github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"

// The names of the groups of flags in help texts.
const (
	groupElection = "Election"
	groupBackend  = "Backend " // followed by the name of the backend
	groupTLS      = "TLS"
	groupLogging  = "Logging"
)

// flagGroups contains the groups in the order in which help texts list them.
var flagGroups = []string{
	groupElection, groupBackend + "zookeeper", groupBackend + "etcd", groupBackend + "changefeed",
	groupBackend + "raftlog", groupTLS, groupLogging,
}

// withoutBackend is the annotation of a command that uses no backend. Its help text omits the flags of
// backends.
const withoutBackend = cmdline.WithoutCommon
