package rpc

import "github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"

const (
	// maxFrame is how long a frame may be: one message with MaxData, and what is around it.
	maxFrame    = wire.MaxData + 64<<10
	maxName     = 2 << 10          // the name of an election, or the ID of a candidate
	maxResult   = wire.MaxData / 2 // of a result that lists candidates
	maxChunk    = 1 << 20
	maxGrant    = 1 << 30 // of bytes, or of messages, at once and in sum
	frameTarget = 128 << 10
	chunkSize   = 64 << 10
)
