package api

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// RequestID identifies an update: a client that retries an update uses the same ID, and the log applies the
// update once. The first 48 bits are the creation time in milliseconds since the Unix epoch, the other 80 bits
// are random. The zero RequestID is invalid.
//
// Peers remember IDs within the deduplication window, and reject an older ID that they do not remember, because
// they cannot know whether it was applied.
type RequestID [16]byte

// ErrRequestIDSyntax is returned if a text is not a request ID.
var ErrRequestIDSyntax = errors.New("not a request ID")

// NewRequestID returns a new ID with the current time. The probability that two IDs of the same
// millisecond are equal is 2^-80.
func NewRequestID() RequestID { return RequestIDAt(time.Now()) }

// RequestIDAt returns a new ID with time t, which must be in the years 1970 to 10889. It is meant for
// programs that do not use the clock of the system. The log compares the times of IDs with the clocks of its
// leaders.
func RequestIDAt(t time.Time) RequestID {
	var id RequestID
	rand.Read(id[6:])
	id.setTime(t.UnixMilli())
	return id
}

// RequestIDFrom returns an ID with time t and the given randomness, of which the first 80 bits are
// used. It is meant for simulations.
func RequestIDFrom(t time.Time, a, b uint64) RequestID {
	var id RequestID
	id.setTime(t.UnixMilli())
	binary.BigEndian.PutUint64(id[6:14], a)
	binary.BigEndian.PutUint16(id[14:16], uint16(b))
	return id
}

func (id *RequestID) setTime(ms int64) {
	binary.BigEndian.PutUint16(id[:2], uint16(ms>>32))
	binary.BigEndian.PutUint32(id[2:6], uint32(ms))
}

// Time returns the creation time, with a resolution of one millisecond.
func (id RequestID) Time() time.Time {
	ms := int64(binary.BigEndian.Uint16(id[:2]))<<32 | int64(binary.BigEndian.Uint32(id[2:6]))
	return time.UnixMilli(ms)
}

// IsZero reports whether id is the zero ID.
func (id RequestID) IsZero() bool { return id == (RequestID{}) }

// String returns the ID as 32 hexadecimal digits.
func (id RequestID) String() string { return hex.EncodeToString(id[:]) }

// ParseRequestID parses the output of [RequestID.String], or an ID of 12 bytes in 24 hexadecimal digits,
// which it converts like [RequestIDFromObjectID]. The error wraps [ErrRequestIDSyntax].
func ParseRequestID(s string) (RequestID, error) {
	raw, err := hex.DecodeString(s)
	switch {
	case err == nil && len(raw) == 16:
		return RequestID(raw), nil
	case err == nil && len(raw) == 12:
		return RequestIDFromObjectID([12]byte(raw)), nil
	}
	return RequestID{}, fmt.Errorf("%w: %q must have 32 or 24 hexadecimal digits", ErrRequestIDSyntax, s)
}

// RequestIDFromObjectID converts an ID of 12 bytes, of which the first four are seconds since the
// Unix epoch, as in MongoDB's ObjectId and ØMQ Raft. Equal inputs give equal IDs, and
// different inputs give different IDs.
func RequestIDFromObjectID(objectID [12]byte) RequestID {
	var id RequestID
	id.setTime(int64(binary.BigEndian.Uint32(objectID[:4])) * 1000)
	copy(id[6:14], objectID[4:])
	return id
}

// MarshalText implements [encoding.TextMarshaler].
func (id RequestID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. It accepts the formats of [ParseRequestID].
func (id *RequestID) UnmarshalText(text []byte) error {
	parsed, err := ParseRequestID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}
