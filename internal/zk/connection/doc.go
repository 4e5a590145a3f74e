// Package connection contains what elections and recipes need to know about a *zk.Conn, and what its
// methods lack:
//
//   - State that is dropped with a connection (Map), and the record of its session (record.go), to which
//     the dialer of package zkdial pushes events. For other connections Poll infers them.
//   - Requests (request.go): the methods of *zk.Conn take no context, and may block while the connection is
//     down. Requests that can be sent again unchanged are repeated. A caller for which a failure changes the
//     next request repeats it itself, with Final and Backoff.
//   - Errors (errors.go), and what the error codes of the servers mean.
//   - The monitor of the session (monitor.go), one for each connection. A connection cannot show that a
//     server which still answers is partitioned from its ensemble. So while a subscription requires a lease,
//     the monitor sends checks: transactions that change nothing. lease.go defines the lease that follows,
//     grant.go the grants that it limits.
//   - Znodes (znode.go): paths, ACLs and parents.
package connection
