// Package zkdial opens connections to ZooKeeper. The connections are ordinary *[zk.Conn],
// with these differences from those of zk.Connect:
//
//   - The session timeout that the servers grant is read from the handshake; see [Granted].
//     For other connections it is read from a private field of the client library, and
//     assumed to be 4 s if that is not possible.
//   - Connections recover if the servers were rebuilt without their data or restored from a
//     backup. Such servers close the connection of a client that has seen later
//     transactions, so the client library can never connect again. After a session timeout
//     without a connection, a connection of this package asks such a server whether it
//     knows the session. If it does not, the session ends as if it had expired, and the
//     client library starts a new one. If it does, because the backup contains the
//     session, it is asked again after two session timeouts, when the session has expired.
//   - Leaderships, locks and other grants end before Close ends the session, with
//     leaderelection.ErrConnClosed. With zk.Connect they end afterwards, when another client
//     may have been granted the same.
//   - Connecting to one server, including TLS and the handshake, takes at most a third of the
//     session timeout divided by the number of servers, or if that is less than a second, a
//     second or a third of the session timeout, whichever is shorter. The client library would
//     wait for several session timeouts for a server that accepts connections and does not
//     answer. The limit is doubled after each round in which no server has answered.
//   - Connections recover after a write that fails while the client library sends credentials
//     again. Other connections of go-zookeeper 1.0.4 are unusable then; candidates and locks
//     on them end with leaderelection.ErrConnClosed after three session timeouts, and at
//     least ten seconds. The same happens if Next of a HostProvider or an event callback of
//     zk.Connect blocks for that long, so they must not block. After that the connection can be
//     used again.
//   - Host names are looked up for each connection attempt, so they may be unknown at first
//     and their addresses may change.
//   - TLS is supported, and verifies the name of each server.
//   - If there is no session for two seconds, a warning names the servers and the reasons; see
//     [WithLogger].
//   - [Wait] waits for the session, and [Failure] reports which server has failed and why.
//
// [Retry] and [Children] send requests that survive a broken connection.
package zkdial
