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
// Run tests in bubbles under the race detector with one processor, -race -cpu 1: with
// more it crashes (Go 1.26.8) when two goroutines of one bubble make timers that are due
// at once, whoever's they are. And let the client come to rest, by synctest.Wait, before
// you close it: go-zookeeper v1.0.4 can leave a goroutine behind, which a bubble does
// not forgive, when it is closed with a request under way. [Server.Close] sees to that
// itself.
//
// # Faults
//
// The network: [Server.DropConnections], [Server.Refuse], [Server.Blackhole],
// [Server.Delay]. One request: [Server.Before] and [Server.After] with [Cut],
// [Fail] or a function of the test's own, for the k-th request of a kind. The
// session: [Server.ExpireSession]. The server: [Server.Pause], [Server.Stop],
// [Server.Restart], [Server.SetSequence], [Server.Sweep]. The ensemble: [Cluster],
// [Server.Partition], which makes the reader of an old state whose session ends
// behind its back, and [Server.Lag], which makes one whose session lives.
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
//	sessions                time-out negotiation, expiry in ticks, re-attachment with password, moving
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
//	SASL, x509, TLS         not implemented: such a client is disconnected
//	read-only mode          not implemented; for what happens without a majority see [Cluster]
//	observers, local
//	sessions, throttling    not implemented
//	elections               immediate; no votes, no log, no snapshots on disk
//	check outside a multi   answered, where a 3.8 server forgets to
//	checkWatches            answers for the asking client, where a 3.8 server may answer for another one
//
// As with a 3.8 server a watch of one mode replaces one of another mode of the same
// client at the same path, and notifications carry no zxid; releases since 3.9 differ.
//
// # Defaults that differ
//
// A tick takes 100 ms instead of 2 s, the longest session time-out is a minute
// instead of 20 ticks, TTL nodes are on, all four-letter words are allowed, and
// there is no limit to the connections of an address.
package zktest
