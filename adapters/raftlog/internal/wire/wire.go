// Package wire encodes the messages that peers and clients send to each other: integers,
// strings and lists, and the types and errors of package api that both the calls of clients
// and the frames between peers contain.
//
// Integers are varints. Strings and lists are preceded by their length. A [Decoder] checks
// every length against a limit before it allocates memory.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// These are the limits of messages. The sender checks them before it sends a message, and the receiver
// when it decodes the message.
const (
	// MaxData is the maximum size of the data of an update in bytes.
	MaxData = 16 << 20
	// MaxElection is the maximum length of the names of elections and candidates in bytes.
	MaxElection = 1 << 10
	// MaxString is the maximum length of an ID, a name or an address in bytes.
	MaxString = 1 << 10
	// MaxText is the maximum length of the text of an error in bytes.
	MaxText = 4 << 10
	// MaxPeers is the maximum length of a list of peers.
	MaxPeers = 1 << 10
	// MaxRemoved is the maximum number of IDs of removed peers in a membership.
	MaxRemoved = 1 << 16
	// maxRemovedBytes is the maximum total size of the IDs of removed peers in a membership, in bytes.
	maxRemovedBytes = MaxData
)

// CheckElection returns an error that describes why name cannot be the name of an election, or nil.
func CheckElection(name string) error {
	switch {
	case name == "" || len(name) > MaxElection:
		return fmt.Errorf("the name of an election must have from 1 to %d bytes, not %d", MaxElection, len(name))
	case !utf8.ValidString(name):
		return fmt.Errorf("the name of the election is not UTF-8: %q", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("the name of the election contains a control character: %q", name)
	}
	return nil
}

// ErrProtocol is wrapped by the error for a message that violates the protocol.
var ErrProtocol = errors.New("violation of the protocol")

// Violation returns an error that wraps ErrProtocol and describes the violation.
func Violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// A Decoder decodes the elements of a message and removes them from the front of B. After the first
// element that is missing or exceeds its limit, all methods return zero values, and Err wraps
// ErrProtocol.
type Decoder struct {
	B   []byte
	Err error
}

// Fail sets Err to the error that the element what is invalid, unless Err is set already, and discards
// the rest of the message.
func (d *Decoder) Fail(what string) {
	if d.Err == nil {
		d.Err = Violation("invalid or missing %s", what)
	}
	d.B = nil
}

// End returns Err. If bytes are left in B, it sets Err first.
func (d *Decoder) End() error {
	if d.Err == nil && len(d.B) > 0 {
		d.Err = Violation("%d bytes after the end of a message", len(d.B))
	}
	return d.Err
}

// Byte decodes one byte and removes it from the message.
func (d *Decoder) Byte(what string) byte {
	if len(d.B) == 0 {
		d.Fail(what)
		return 0
	}
	v := d.B[0]
	d.B = d.B[1:]
	return v
}

// Uint decodes an unsigned integer, which must be at most limit.
func (d *Decoder) Uint(what string, limit uint64) uint64 {
	v, n := binary.Uvarint(d.B)
	if n <= 0 || v > limit {
		d.Fail(what)
		return 0
	}
	d.B = d.B[n:]
	return v
}

// Uint64 decodes an unsigned integer.
func (d *Decoder) Uint64(what string) uint64 { return d.Uint(what, 1<<64-1) }

// Int decodes a signed integer.
func (d *Decoder) Int(what string) int64 {
	v, n := binary.Varint(d.B)
	if n <= 0 {
		d.Fail(what)
		return 0
	}
	d.B = d.B[n:]
	return v
}

// Bool decodes a boolean and removes it from the message.
func (d *Decoder) Bool(what string) bool {
	v := d.Byte(what)
	if v > 1 {
		d.Fail(what)
	}
	return v == 1
}

// Raw removes n bytes from the message and returns them. The result shares the memory of the message.
func (d *Decoder) Raw(what string, n uint64) []byte {
	if n > uint64(len(d.B)) {
		d.Fail(what)
		return nil
	}
	v := d.B[:n:n]
	d.B = d.B[n:]
	return v
}

// String decodes a string, which must have at most limit bytes.
func (d *Decoder) String(what string, limit uint64) string {
	return string(d.Raw(what, d.Uint(what, limit)))
}

// Data removes all remaining bytes, of which there must be at most MaxData, and returns them. The
// result shares the memory of the message.
func (d *Decoder) Data(what string) []byte {
	if len(d.B) > MaxData {
		d.Fail(what)
	}
	return d.Raw(what, uint64(len(d.B)))
}

// Count decodes the number of the elements that follow, each of which has at least size bytes. It fails
// if there are more than limit elements, or more than the remaining bytes can contain.
func (d *Decoder) Count(what string, limit, size uint64) int {
	n := d.Uint(what, limit)
	if n*size > uint64(len(d.B)) {
		d.Fail(what)
		return 0
	}
	return int(n)
}

// Peer decodes a peer and removes it from the message.
func (d *Decoder) Peer() api.Peer {
	return api.Peer{ID: d.String("ID of a peer", MaxString), Addr: d.String("address of a peer", MaxString)}
}

// Peers decodes a list of peers.
func (d *Decoder) Peers() []api.Peer {
	n := d.Count("number of peers", MaxPeers, 2)
	if n == 0 {
		return nil
	}
	peers := make([]api.Peer, n)
	for i := range peers {
		peers[i] = d.Peer()
	}
	return peers
}

// Time decodes a time: seconds and nanoseconds. 10^9 nanoseconds represent the zero time.
func (d *Decoder) Time() time.Time {
	sec, nsec := d.Int("time"), d.Uint("time", 1e9)
	if d.Err != nil || nsec == 1e9 {
		return time.Time{}
	}
	return time.Unix(sec, int64(nsec)).UTC()
}

// Membership decodes a membership and removes it from the message.
func (d *Decoder) Membership() api.Membership {
	m := api.Membership{Index: d.Uint64("index")}
	m.Voters, m.Outgoing, m.Learners = d.Peers(), d.Peers(), d.Peers()
	if n := d.Count("number of removed IDs", MaxRemoved, 1); n > 0 {
		m.Removed = make([]string, n)
		for i := range m.Removed {
			m.Removed[i] = d.String("removed ID", MaxString)
		}
	}
	return m
}

// AppendBool appends the encoding of a boolean.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendString appends the encoding of a string.
func AppendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// AppendPeer appends the encoding of a peer.
func AppendPeer(b []byte, p api.Peer) []byte {
	return AppendString(AppendString(b, p.ID), p.Addr)
}

// AppendPeers appends the encoding of a list of peers.
func AppendPeers(b []byte, peers []api.Peer) []byte {
	b = binary.AppendUvarint(b, uint64(len(peers)))
	for _, p := range peers {
		b = AppendPeer(b, p)
	}
	return b
}

// AppendTime appends the encoding of a time.
func AppendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.AppendUvarint(binary.AppendVarint(b, 0), 1e9)
	}
	return binary.AppendUvarint(binary.AppendVarint(b, t.Unix()), uint64(t.Nanosecond()))
}

// AppendMembership appends the encoding of a membership.
func AppendMembership(b []byte, m api.Membership) []byte {
	b = binary.AppendUvarint(b, m.Index)
	b = AppendPeers(AppendPeers(AppendPeers(b, m.Voters), m.Outgoing), m.Learners)
	b = binary.AppendUvarint(b, uint64(len(m.Removed)))
	for _, id := range m.Removed {
		b = AppendString(b, id)
	}
	return b
}

// CheckPeers returns an error that wraps api.ErrInvalid if the receiver of a message would reject the
// peers.
func CheckPeers(peers ...api.Peer) error {
	if len(peers) > MaxPeers {
		return fmt.Errorf("%w: %d peers, the limit is %d", api.ErrInvalid, len(peers), MaxPeers)
	}
	for _, p := range peers {
		if len(p.ID) > MaxString || len(p.Addr) > MaxString {
			return fmt.Errorf("%w: the ID and the address of a peer must have at most %d bytes each, not %d and %d",
				api.ErrInvalid, MaxString, len(p.ID), len(p.Addr))
		}
	}
	return nil
}

// CheckMembership returns an error that wraps api.ErrInvalid or api.ErrTooLarge if the receiver of a
// message would reject the membership.
func CheckMembership(m api.Membership) error {
	for _, peers := range [][]api.Peer{m.Voters, m.Outgoing, m.Learners} {
		if err := CheckPeers(peers...); err != nil {
			return err
		}
	}
	if len(m.Removed) > MaxRemoved {
		return fmt.Errorf("%w: %d removed IDs, the limit is %d", api.ErrTooLarge, len(m.Removed), MaxRemoved)
	}
	size := 0
	for _, id := range m.Removed {
		size += len(id)
		if len(id) > MaxString || size > maxRemovedBytes {
			return fmt.Errorf("%w: the IDs of the removed peers are too long", api.ErrTooLarge)
		}
	}
	return nil
}

// Cut returns the first limit bytes of s, or all of s if it is shorter.
func Cut(s string, limit int) string { return s[:min(len(s), limit)] }
