// Package connection contains what elections and recipes need to know about a *zk.Conn, and what its
// methods lack. It consists of:
//
//   - State that belongs to a connection and is dropped with it (Map).
//   - The record of a connection (record.go): its session, its servers, and why it has no session. The
//     dialer of package zkdial pushes events. For other
//     connections Poll infers them from the state of the client library.
//   - Requests (request.go): the methods of *zk.Conn take no context, and may block while the connection
//     is down. Callers can stop waiting; failures are transient or final; requests that can be sent again
//     unchanged are repeated. Callers for which a failure changes the next request, such as a create whose
//     reply was lost, repeat it themselves, with Transient and Backoff. Get and Children recognize
//     replies that are too large.
//   - Errors (errors.go): those that elections and recipes have in common, and what the error codes of the
//     servers mean.
//   - The monitor of the session (monitor.go), one for each connection. Its state follows from the events
//     of the record, from acknowledged checks, and from the time. A connection cannot show that a server
//     which still answers is partitioned from its ensemble. Therefore the monitor sends checks while a
//     subscription requires a lease: transactions that check the subscriptions' znodes and change nothing.
//     lease.go defines which lease follows from them, and detects that this process was stopped. grant.go
//     contains the grants of leaderships and locks, which such a lease limits.
//   - Znodes (znode.go): paths, ACLs, and how the znodes above those of elections and recipes are
//     created.
package connection
