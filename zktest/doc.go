// Package zktest implements a ZooKeeper server inside the test process, for tests, demos
// and development. It keeps all data in memory and replicates nothing: use an Apache
// ZooKeeper ensemble in production.
//
// The server starts in microseconds, speaks the wire protocol to any client, and injects
// the faults that a test requests.
//
// # A first test
//
//	func TestRegister(t *testing.T) {
//		srv := zktest.Start(t)
//		conn, _, err := srv.Connect(10 * time.Second) // an ordinary *zk.Conn
//		if err != nil {
//			t.Fatal(err)
//		}
//		register(conn, "/workers", "w1") // the code under test
//		if !strings.Contains(srv.Tree(), "w1") {
//			t.Errorf("not registered:\n%s", srv.Tree())
//		}
//	}
//
// [Start] closes the server and its clients when the test ends. [Server.Connect] connects
// go-zookeeper's client through memory. Clients in other languages, and other Go clients,
// connect to [Server.Addr] on the loopback interface.
//
// # Time
//
// Start the server inside a testing/synctest bubble and connect with [Server.Connect] or
// [Server.Dialer]: client and server then use fake time, and an hour of a session takes
// milliseconds. Bubbles lack a real network, so [Server.Addr] must not be called in it.
// To test clients that cannot run in a bubble, use [WithManualClock] and
// [Server.Advance], which expires sessions when the test requests it.
//
// Call synctest.Wait before you close the client, so that the client is idle:
// go-zookeeper v1.0.4 can leak a goroutine if it is closed during a request, and the test
// then fails. [Server.Close] does this wait itself. Similarly, t.Fatal prints a page of
// goroutines ("blocked goroutines remain") if a goroutine that the test has started is
// still running in the bubble. Stop such goroutines in a function passed to t.Cleanup.
//
// In a bubble, a test that waits for an event that never happens does not deadlock,
// because the client's timers keep running. After 24 hours of fake time, which is a few
// seconds of real time, the server stops the test process and prints the stacks of the
// bubble's goroutines; see [WithFakeTimeLimit].
//
// # The race detector
//
//	go test -race -cpu 1 -gcflags=github.com/go-zookeeper/zk=-race=false ./...
//
// The last flag compiles the client library without the race detector. go-zookeeper
// v1.0.4 has a race between sendSetWatches and recvLoop if it reconnects during requests
// (pull request 35 of its repository), which the detector reports in some runs. -cpu 1 is
// necessary for tests in bubbles: the race detector of Go 1.26.8 crashes if two
// goroutines of a bubble create timers that are due immediately.
//
// # Faults
//
//   - Network: [Server.DropConnections], [Server.Refuse], [Server.Blackhole],
//     [Server.Delay].
//   - Single requests: [Server.Before] and [Server.After] with [Cut], [Fail] or a
//     function of the test, for the k-th request of a kind.
//   - Sessions: [Server.ExpireSession].
//   - Server: [Server.Pause], [Server.Stop], [Server.Restart], [Server.SetSequence],
//     [Server.Sweep].
//   - Ensemble: [StartEnsemble]; [Ensemble.Restart], optionally with the loss of all data;
//     [Server.Partition], during which clients read an old state while their sessions
//     expire on the majority side; [Server.Lag] and [Server.LagBy], during which clients
//     read an old state and keep their sessions.
//
// To test that another candidate takes over while the leader is partitioned, use a
// [StartEnsemble] and connect the leader to one server only, with [Server.Connect]; then call
// [Server.Partition] without sessions, as in the example of that method. A client that
// knows other servers connects to one of them after two thirds of its session timeout and
// keeps its session. A client whose session is an argument of Partition reconnects to its
// own server in the same way, so the same candidate leads again.
//
// This server is faster than a server that writes to a disk, so the order of a client's
// actions and the server's responses can differ from production. [Server.Delay] slows the
// server down: with Delay(BothWays, 10*time.Millisecond) a request takes as long as on a
// real ensemble.
//
// A client loses its watches if the server rejects the request that sets them again after
// a reconnect (newer Java clients send OpSetWatches2):
//
//	srv.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zk.ErrAPIError))
//
// [Server.Drop] loses single watch events and single requests of that kind without an error:
//
//	srv.Drop(zktest.Match{Op: zktest.OpNotification, Path: "/election/*", Nth: 1})
//
// [Server.Tree], [Server.Sessions], [Server.Watches] and [Server.Log] return the state of
// the server and the requests that it has received.
//
// # What is implemented
//
// The behavior is that of release 3.8. A test of this package sends the same scripted and
// random requests to this server and to Apache ZooKeeper 3.8, and compares responses,
// Stats, zxids and the order of events. kazoo, zkCli and Curator's recipes are tested as
// well.
//
//	sessions                timeout negotiation, expiry in ticks, re-attachment with password, moving
//	                        between servers, the handshake with and without the read-only flag
//	create                  all modes, create2, containers, TTL, sequence numbers as the server counts them
//	reads                   exists, getData, getChildren, getChildren2, getACL, getEphemerals,
//	                        getAllChildrenNumber, multiRead
//	writes                  delete, setData, setACL, multi with check; sync
//	watches                 one-shot, persistent and recursive, setWatches, setWatches2, addWatch,
//	                        removeWatches, checkWatches; events are filtered by the READ permission
//	ACL                     world, auth, digest, ip (IPv4), a super user; whoAmI
//	/zookeeper              config and quota exist; quotas are not counted or enforced
//	four-letter words       ruok isro srvr stat mntr cons conf dump envi wchs wchc wchp crst srst dirs
//	                        gtmk stmk hash; latencies are always 0
//	malformed requests      answered with the error that the real server returns, or the connection is closed
//
//	reconfig                answered with "reconfig disabled", which is the default of a real server
//	SASL                    not implemented; a token is answered as by a server without SASL
//	x509, TLS               not implemented: such a client is disconnected
//	AdminServer, JMX,
//	Prometheus              not implemented; the four-letter words report the same numbers
//	read-only mode          not implemented; for the behavior without a majority see [StartEnsemble]
//	observers, local
//	sessions, throttling    not implemented
//	elections               immediate; no votes, no log, no snapshots on disk
//	replication             immediate, unless a server lags; see [Server.Lag]
//	session activity        reported by followers with the answers to pings; see [StartEnsemble]
//	silent connections      closed after 10 s without a handshake; the real server rounds that up
//	check outside a multi   answered, while a 3.8 server sends no answer
//	checkWatches            answers for the requesting client; a 3.8 server may answer for another client
//
// As on a 3.8 server, a watch of one mode replaces a watch of another mode of the same
// client at the same path, and notifications do not contain a zxid; releases since 3.9
// differ.
//
// [WithoutReattach], [WithContainerOwner] and [WithoutOps] make the server behave like
// ClickHouse Keeper.
//
// # Defaults that differ
//
// A tick takes 100 ms instead of 2 s, the greatest session timeout is one minute instead
// of 20 ticks, TTL nodes are enabled, all four-letter words are allowed, and the number
// of connections per address is not limited.
package zktest
