// Package rpc implements the calls of a [Service] over connections.
//
// # Protocol
//
// A connection of [link.PurposeClient] carries calls. Each frame is one message: a kind, the number of
// a call, and a body. The caller numbers its calls in increasing order and does not wait for replies.
// Each call receives one reply; the replies may arrive in any order. The caller can cancel a call,
// which still receives a reply. An empty frame is a ping, which the server answers with an empty frame.
//
// A connection of [link.PurposeStream] carries one stream: a sequence of the events of the log, or a
// snapshot. The first frame is the request of the client. After the request, only the server sends
// messages, each of which is a frame of a kind and a body. TCP limits what the server sends to a slow
// reader. The client cancels a stream by closing its connection. Until then, the client sends empty
// frames, so that the server detects a lost client.
//
// The handshake of package link authenticates both sides and compares their versions.
package rpc
