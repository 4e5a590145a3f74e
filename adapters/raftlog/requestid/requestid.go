// Package requestid implements the IDs that identify updates of a raftlog cluster: a client
// that retries an update uses the same ID, and the log applies the update once.
//
// An ID contains its creation time. Peers remember IDs within the deduplication window, and
// reject an older ID that they do not remember, because they cannot know whether it was
// applied.
package requestid

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// ID identifies an update. The first 48 bits are the creation time in milliseconds since
// the Unix epoch, the other 80 bits are random. The zero ID is invalid.
type ID [16]byte

// ErrSyntax is returned if a text is not an ID.
var ErrSyntax = errors.New("requestid: not a request ID")

// New returns a new ID with the current time. The probability that two IDs of the same
// millisecond are equal is 2^-80.
func New() ID { return At(time.Now()) }

// At returns a new ID with time t, which must be in the years 1970 to 10889. Programs with
// a separate clock should use it for their IDs; the log compares them with the clocks of
// its leaders.
func At(t time.Time) ID {
	var id ID
	rand.Read(id[6:])
	id.setTime(t.UnixMilli())
	return id
}

// From returns an ID with time t and the given randomness, of which the first 80 bits are
// used. It is meant for simulations.
func From(t time.Time, a, b uint64) ID {
	var id ID
	id.setTime(t.UnixMilli())
	binary.BigEndian.PutUint64(id[6:14], a)
	binary.BigEndian.PutUint16(id[14:16], uint16(b))
	return id
}

func (id *ID) setTime(ms int64) {
	binary.BigEndian.PutUint16(id[:2], uint16(ms>>32))
	binary.BigEndian.PutUint32(id[2:6], uint32(ms))
}

// Time returns the creation time, with a resolution of one millisecond.
func (id ID) Time() time.Time {
	ms := int64(binary.BigEndian.Uint16(id[:2]))<<32 | int64(binary.BigEndian.Uint32(id[2:6]))
	return time.UnixMilli(ms)
}

// IsZero reports whether id is the zero ID.
func (id ID) IsZero() bool { return id == ID{} }

// String returns the ID as 32 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Parse parses the output of [ID.String], or an ID of 12 bytes in 24 hexadecimal digits,
// which it converts like [FromObjectID]. The error wraps [ErrSyntax].
func Parse(s string) (ID, error) {
	raw, err := hex.DecodeString(s)
	switch {
	case err == nil && len(raw) == 16:
		return ID(raw), nil
	case err == nil && len(raw) == 12:
		return FromObjectID([12]byte(raw)), nil
	}
	return ID{}, fmt.Errorf("%w: %q must have 32 or 24 hexadecimal digits", ErrSyntax, s)
}

// FromObjectID converts an ID of 12 bytes, of which the first four are seconds since the
// Unix epoch, as in MongoDB's ObjectId and ØMQ Raft. Equal inputs give equal IDs, and
// different inputs give different IDs.
func FromObjectID(objectID [12]byte) ID {
	var id ID
	id.setTime(int64(binary.BigEndian.Uint32(objectID[:4])) * 1000)
	copy(id[6:14], objectID[4:])
	return id
}

// MarshalText implements [encoding.TextMarshaler].
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. It accepts the formats of [Parse].
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}
