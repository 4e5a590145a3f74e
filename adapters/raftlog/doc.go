// Package raftlog implements elections and a replicated log inside a program, without
// external servers: several peers of the program form a cluster that uses the Raft
// algorithm. The log applies each update exactly once.
//
// # Guarantees
//
//   - An update that [Node.Propose] has confirmed is on the disks of a majority of the
//     voters, and is applied by all peers in the same order. It is lost only if a majority
//     of the disks is lost.
//   - An update is applied exactly once, however often it is proposed with its ID, by any
//     peer, and across leaders, restarts and snapshots, while the ID is within the
//     deduplication window (7 hours by default). Later proposals are rejected and not
//     applied again.
//   - At most one candidate of an election is the leader, and it learns that it has lost
//     leadership before another candidate can become leader, by a local timer that does not
//     depend on the network or the disk. This assumes that the rates of clocks differ by at
//     most 1 % and that the process is not stopped. Later leaderships have greater tokens;
//     this needs no assumption.
//   - A peer stops and reports a fault if its disk fails, or if its log contradicts itself
//     or the log of the cluster. It never repairs its log by discarding data.
//
// # Usage
//
//	node, err := raftlog.Open(raftlog.Config{
//		Cluster: "orders",
//		ID:      "a", Addr: "10.0.0.1:8047",
//		Peers: []api.Peer{
//			{ID: "a", Addr: "10.0.0.1:8047"}, {ID: "b", Addr: "10.0.0.2:8047"}, {ID: "c", Addr: "10.0.0.3:8047"},
//		},
//		Dir: "/var/lib/orders/raft", Secret: secret, StateMachine: orders,
//	})
//	...
//	index, err := node.Propose(ctx, api.NewRequestID(), update)
//
//	election, err := raftlog.NewElection(node, "dispatcher")
//	go election.ElectLeader()
//	for status := range election.Status() { ... }
//
// Any number of elections can share a node, and each can have a different leader: the
// leader of the log is not the leader of all elections. Peers can join and leave while the
// cluster runs; see [Node.ChangePeers]. Programs that are not peers use package client.
// Package api defines the types and errors that both packages have in common.
//
// docs/raftlog.md describes the algorithm and why it is correct.
package raftlog
