// Package raftlog gives a program elections, and a log in which every update is applied
// once, with no server beside it: a few peers of the program itself form a cluster, by the
// Raft algorithm.
//
// # What is guaranteed
//
//   - What [Node.Propose] has confirmed is on the disks of a majority of the voters, and is
//     applied by every peer in the same order. It is lost only with a majority of the disks.
//   - An update is applied once, however often it is proposed under its ID, by whatever peer,
//     across leaders, restarts and snapshots, for as long as the ID is fresh (7 hours by
//     default); after that it is refused, and not applied again.
//   - Of an election at most one candidate leads, and it is told of the end of its leadership
//     before another can lead: by a timer of its own, whatever the network and the disk do.
//     This supposes that clocks run at rates within 1 % of each other and that the process
//     runs. Later leaderships have greater tokens; these suppose nothing.
//   - A peer whose disk has failed, or whose log contradicts itself or the cluster's, stops,
//     and says so. It is never put right by forgetting.
//
// # A cluster
//
//	node, err := raftlog.Open(raftlog.Config{
//		Cluster: "orders",
//		ID:      "a", Addr: "10.0.0.1:8047",
//		Peers: []raftlog.Peer{
//			{ID: "a", Addr: "10.0.0.1:8047"}, {ID: "b", Addr: "10.0.0.2:8047"}, {ID: "c", Addr: "10.0.0.3:8047"},
//		},
//		Dir: "/var/lib/orders/raft", Secret: secret, StateMachine: orders,
//	})
//	...
//	index, err := node.Propose(ctx, requestid.New(), update)
//
//	election, err := raftlog.NewElection(node, "dispatcher")
//	go election.ElectLeader()
//	for status := range election.Status() { ... }
//
// Any number of elections share a node, and each may have another leader: the peer that
// leads the log is not the one that leads them all. Peers join and leave while the cluster
// works, see [Node.ChangePeers]. Programs that are no peers use package client.
//
// docs/raftlog.md describes the algorithm and why it is right.
package raftlog
