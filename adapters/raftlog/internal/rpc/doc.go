// Package rpc carries the calls of an [Service] over one connection, many at once, so
// that clients speak to a peer as they would in its process.
//
// # Protocol
//
// The connection carries frames. The first one of each side says which protocol it speaks,
// by a magic number and a version; a side that gets another version does nothing more. The
// caller does not wait for the answer to that before its first calls.
//
// Every other frame is one message or several, each of which is
//
//	kind byte | call uvarint | length of the body uvarint | body
//
// Calls are numbered by the caller, upwards. Each gets exactly one last message, msgResult,
// msgDone or msgError. Messages that come together are written together, in one frame of up
// to about frameTarget bytes.
//
// Streams, of entries and of snapshots, are paid for: the caller grants bytes and messages,
// and the server reads its log only while there is some of both left. The bytes may be
// overdrawn by one message, so that any message fits at last.
//
// Integers are varints, strings and data have their length before them. Every decoder has
// limits that hold before anything is allocated, and refuses what is left over.
package rpc
