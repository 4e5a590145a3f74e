// Package client accesses a raftlog cluster from programs that are not peers: it proposes
// updates, changes the membership, queries the status of peers, follows the log, shows
// elections, and requests leaders to resign.
//
// A client needs the address of one reachable peer. It learns the other peers and the
// leader from the peers, and refreshes them periodically, so that it keeps working if all
// peers of a cluster are replaced one by one. A failed request is retried at the next peer
// until the context of the call is done. Retries of an update use the same request ID, so
// it is applied exactly once.
//
// A client has one connection to each peer that it calls, and one for each subscription.
package client
