package rpc

// Integers, strings and lists in bytes: the pieces that all messages are made of.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// The limits of what is read, and of what is written so that others can read it.
const (
	// MaxData is how many bytes an update, or an entry, may have.
	MaxData = 32 << 20
	// maxFrame is how long a frame may be: one message with MaxData, and what is around it.
	maxFrame    = MaxData + 64<<10
	maxString   = 1 << 10 // a name or an address
	maxName     = 2 << 10 // the name of an election, or the ID of a candidate
	maxText     = 4 << 10 // what an error says
	maxPeers    = 1 << 10
	maxRemoved  = 1 << 16
	maxResult   = MaxData / 2 // of a result that lists candidates
	maxChunk    = 1 << 20
	maxGrant    = 1 << 30 // of bytes, or of messages, at once and in sum
	frameTarget = 128 << 10
	chunkSize   = 64 << 10
)

// ErrProtocol: the other side has sent what is no message of this protocol, or speaks
// another version of it.
var ErrProtocol = errors.New("protocol violation")

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// decoder takes pieces off the front of b. After the first that is not there, or is beyond
// its limit, everything is zero and err says what was wanted.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = violation("no %s within its limits where one has to be", what)
	}
	d.b = nil
}

// end is for after the last piece: nothing may be left.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = violation("%d bytes too many in a message", len(d.b))
	}
	return d.err
}

func (d *decoder) byte(what string) byte {
	if len(d.b) == 0 {
		d.fail(what)
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uint(what string, limit uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > limit {
		d.fail(what)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int(what string) int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail(what)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bool(what string) bool {
	v := d.byte(what)
	if v > 1 {
		d.fail(what)
	}
	return v == 1
}

// bytes are a part of the message: whoever keeps them copies them.
func (d *decoder) bytes(what string, limit uint64) []byte {
	n := d.uint(what, limit)
	return d.raw(what, n)
}

func (d *decoder) raw(what string, n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail(what)
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) string(what string, limit uint64) string { return string(d.bytes(what, limit)) }

// count is how many elements follow, of at least size bytes each: no more than can.
func (d *decoder) count(what string, limit, size uint64) int {
	n := d.uint(what, limit)
	if n*size > uint64(len(d.b)) {
		d.fail(what)
		return 0
	}
	return int(n)
}

func (d *decoder) peer() api.Peer {
	return api.Peer{ID: d.string("peer's ID", maxString), Addr: d.string("peer's address", maxString)}
}

func (d *decoder) peers() []api.Peer {
	n := d.count("number of peers", maxPeers, 2)
	if n == 0 {
		return nil
	}
	peers := make([]api.Peer, n)
	for i := range peers {
		peers[i] = d.peer()
	}
	return peers
}

// time is seconds and nanoseconds; 10^9 of these are the zero time, which has no place among
// the others.
func (d *decoder) time() time.Time {
	sec, nsec := d.int("time"), d.uint("time", 1e9)
	if d.err != nil || nsec == 1e9 {
		return time.Time{}
	}
	return time.Unix(sec, int64(nsec)).UTC()
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendString[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendPeer(b []byte, p api.Peer) []byte {
	return appendString(appendString(b, p.ID), p.Addr)
}

func appendPeers(b []byte, peers []api.Peer) []byte {
	b = binary.AppendUvarint(b, uint64(len(peers)))
	for _, p := range peers {
		b = appendPeer(b, p)
	}
	return b
}

func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.AppendUvarint(binary.AppendVarint(b, 0), 1e9)
	}
	return binary.AppendUvarint(binary.AppendVarint(b, t.Unix()), uint64(t.Nanosecond()))
}

// checkPeers refuses peers that the other side would not read.
func checkPeers(peers []api.Peer) error {
	if len(peers) > maxPeers {
		return fmt.Errorf("%w: %d peers, the limit is %d", api.ErrInvalid, len(peers), maxPeers)
	}
	for _, p := range peers {
		if len(p.ID) > maxString || len(p.Addr) > maxString {
			return fmt.Errorf("%w: the ID and the address of a peer must have at most %d bytes each, not %d and %d", api.ErrInvalid, maxString, len(p.ID), len(p.Addr))
		}
	}
	return nil
}
