// Package client speaks to the peers of a raft log from outside: it proposes updates, changes
// who the peers are, asks how they are, and follows the log.
//
// A client needs the address of one peer that answers; it learns the others, and who leads,
// from the peers, again and again, so that it stays with a cluster all of whose peers are
// replaced one by one. Whatever fails is tried at the next peer until the context of the
// call ends, an update always under the same request ID, so that it is applied once however
// often it was sent.
package client
