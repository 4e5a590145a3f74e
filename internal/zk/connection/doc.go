// Package connection contains what elections and recipes need to know about a *zk.Conn, and what its
// methods lack:
//
//   - State that exists as long as a connection (Map), and the record of the session of a connection
//     (record.go). The dialer of package zkdial pushes events to the record; for other connections Poll infers
//     the events.
//   - Requests (request.go): the methods of *zk.Conn take no context, and may block while the connection is
//     down. The functions Read and Retry repeat requests that can be sent again unchanged. If a failure changes
//     the next request, the caller repeats the request itself, with Final and Backoff.
//   - Errors (errors.go), and what the error codes of the servers mean.
//   - The monitor of the session (monitor.go), one for each connection. A connection cannot show that a
//     server which still answers is partitioned from its ensemble. So while a subscription requires a lease,
//     the monitor sends checks: transactions that change nothing. lease.go computes the lease from the
//     acknowledged checks, and grant.go defines the grants that end with the lease.
//   - Znodes (znode.go): paths, ACLs and parents.
package connection
