// Package zkdial opens connections to ZooKeeper. The connections are ordinary
// *[zk.Conn], with these differences from those of zk.Connect:
//
//   - The session timeout that the servers grant is read from the handshake, see
//     [Granted]. Of other connections it is read from a private field of the client
//     library, and assumed to be 4 s where that is not possible.
//   - If the servers were rebuilt without their data, or restored from a backup, the
//     client library cannot connect to them any more: they close the connection of a
//     client that has seen later transactions. After a session timeout without any
//     connection, a dialer of this package asks such a server whether it knows the
//     session. If it does not, the session ends as if it had expired, and the client
//     library begins a new one. Other connections never recover.
//   - Names of servers are looked up at each connection, so they may be unknown
//     at the beginning and may change.
//   - TLS, with the name of each server.
//   - [Wait] waits for the session, and says which server failed and why.
package zkdial
