// Package migration moves an election from one backend to another while the program runs, for example
// from ZooKeeper to etcd, or from a database to ZooKeeper. A [Candidate] takes part in two elections and
// leads only while it leads both. [NewCandidate] has an example.
//
// The instances of the program are replaced one after another, in two rounds:
//
//  1. Each instance that is a candidate of the old election only is replaced by one that uses this
//     package. Both kinds exclude each other by the old election.
//  2. When no instance of the first kind is left, each one is replaced by a candidate of the new election
//     only. Both kinds exclude each other by the new election.
//
// Never run instances of the first and the last kind at the same time: they do not exclude each other.
package migration
