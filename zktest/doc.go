// Package zktest is a ZooKeeper server inside the test process, for tests, demos
// and development. Production runs on an Apache ZooKeeper ensemble: this server
// keeps everything in memory, in one process, and replicates nothing.
//
// It starts in microseconds, speaks the wire protocol to any client, and fails in
// the way it is told to.
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
// [Start] closes the server and its clients when the test ends. [Server.Connect]
// connects go-zookeeper's client through memory. Any other client, of any
// language, connects to [Server.Addr] on the loopback interface.
//
// # Time
//
// Start the server inside of a testing/synctest bubble, and connect with
// [Server.Connect] or [Server.Dialer]: client and server then live on fake time,
// and an hour of session life takes milliseconds. There is no real network in a
// bubble, so [Server.Addr] must not be called there. Clients that cannot be in a
// bubble are tested with [WithManualClock] and [Server.Advance], which ends
// sessions when the test says so.
//
// Let the client become idle, by synctest.Wait, before you close it: go-zookeeper v1.0.4
// can leave a goroutine behind if it is closed during a request, and the test then fails.
// [Server.Close] waits by itself. In the same way t.Fatal prints a page of goroutines
// ("blocked goroutines remain") if something that the test has started still runs in the
// bubble. Stop it in a function given to t.Cleanup.
//
// # The race detector
//
//	go test -race -cpu 1 -gcflags=github.com/go-zookeeper/zk=-race=false ./...
//
// The last flag compiles the client library without the race detector. Its v1.0.4 has a
// race between sendSetWatches and recvLoop when it reconnects during requests (pull
// request 35 of its repository), which the detector reports in some runs. -cpu 1 is
// necessary for tests in bubbles: the race detector of Go 1.26.8 crashes if two
// goroutines of a bubble create timers that are due immediately.
//
// In a bubble a test that waits for something that never happens does not deadlock, since
// the timers of the client go on. After 24 hours of fake time, a few seconds of real time,
// the server ends it and shows the stacks of its goroutines; see [WithFakeTimeLimit].
//
// # Faults
//
// The network: [Server.DropConnections], [Server.Refuse], [Server.Blackhole],
// [Server.Delay]. One request: [Server.Before] and [Server.After] with [Cut],
// [Fail] or a function of the test, for the k-th request of a kind. The
// session: [Server.ExpireSession]. The server: [Server.Pause], [Server.Stop],
// [Server.Restart], [Server.SetSequence], [Server.Sweep]. The ensemble: [Cluster],
// [Ensemble.Restart], which loses the state of all servers if required;
// [Server.Partition], with which clients read an old state while their sessions end
// on the other side; [Server.Lag] and [Server.LagBy], with which clients read an old
// state and their sessions live.
//
// To test how another candidate takes over while the leader is cut off, use a [Cluster] and
// connect the leader to one server only, with [Server.Connect]; then call
// [Server.Partition] without sessions, as in the example there. A client that knows other
// servers connects to one of them after two thirds of its session timeout, and keeps its
// session. A client whose session is named in the call of Partition does the same at its
// own server, so the same candidate leads again.
//
// This server is faster than one that writes to a disk, so a client that races with its
// own server can behave differently. [Server.Delay] slows it down: with
// Delay(BothWays, 10*time.Millisecond) a request takes as long as on a real ensemble.
//
// A client loses its watches if the server rejects, after a reconnect, the request
// that sets them again (newer Java clients send OpSetWatches2):
//
//	srv.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zk.ErrAPIError))
//
// What happened is in [Server.Tree], [Server.Sessions], [Server.Watches] and
// [Server.Log].
//
// # What is implemented
//
// The behaviour is that of release 3.8. A test of this package sends the same
// requests, scripted and random ones, to this server and to Apache ZooKeeper
// 3.8 and compares answers, Stats, transaction numbers and the order of events;
// kazoo, zkCli and Curator's recipes are tried too.
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
//	broken requests         answered with the server's own error, or the connection closes
//
//	reconfig                answered with "reconfig disabled", as by default
//	SASL                    not implemented; a token is answered as by a server without SASL
//	x509, TLS               not implemented: such a client is disconnected
//	AdminServer, JMX,
//	Prometheus              not implemented; the four-letter words report the same numbers
//	read-only mode          not implemented; for what happens without a majority see [Cluster]
//	observers, local
//	sessions, throttling    not implemented
//	elections               immediate; no votes, no log, no snapshots on disk
//	replication             immediate, unless a server lags; see [Server.Lag]
//	session activity        reported by followers with the answers to pings; see [Cluster]
//	silent connections      closed after 10 s without a handshake; the real server rounds that up
//	check outside a multi   answered, where a 3.8 server forgets to
//	checkWatches            answers for the asking client, where a 3.8 server may answer for another one
//
// As with a 3.8 server a watch of one mode replaces one of another mode of the same
// client at the same path, and notifications carry no zxid; releases since 3.9 differ.
//
// [WithoutReattach], [WithContainerOwner] and [WithoutOps] make the server behave as
// ClickHouse Keeper does.
//
// # Defaults that differ
//
// A tick takes 100 ms instead of 2 s, the longest session timeout is a minute
// instead of 20 ticks, TTL nodes are on, all four-letter words are allowed, and
// there is no limit to the connections of an address.
package zktest
