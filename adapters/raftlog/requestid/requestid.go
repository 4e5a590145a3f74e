// Package requestid has the names by which updates of a raft log are told apart: whoever
// repeats an update repeats its ID, and the log applies it once.
//
// An ID says when it was made. Peers remember an ID for as long as it is fresh, and refuse
// one that they do not know and that is too old for them to know that they never did.
package requestid

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// ID names an update. Its first 48 bits are a time in milliseconds since 1970, the other
// 80 are random. The zero ID is none.
type ID [16]byte

// ErrSyntax: a text is not an ID's.
var ErrSyntax = errors.New("requestid: not a request ID")

// New returns an ID of now that nobody else has: two of the same millisecond are equal with
// a chance of 2^-80.
func New() ID { return At(time.Now()) }

// At returns an ID with that time, which must be in the years 1970 to 10889. A program that
// has its own clock makes its IDs by it; the log judges them by its leaders' clocks.
func At(t time.Time) ID {
	var id ID
	rand.Read(id[6:])
	id.setTime(t.UnixMilli())
	return id
}

// From returns an ID of that time with randomness from elsewhere, of which the first 80 bits
// count: for simulations.
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

// Time is when the ID was made, in whole milliseconds.
func (id ID) Time() time.Time {
	ms := int64(binary.BigEndian.Uint16(id[:2]))<<32 | int64(binary.BigEndian.Uint32(id[2:6]))
	return time.UnixMilli(ms)
}

// IsZero tells whether id is the zero ID.
func (id ID) IsZero() bool { return id == ID{} }

// String is the ID in 32 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Parse reads what [ID.String] has written, or the 24 hexadecimal digits of an ID of
// 12 bytes, as [FromObjectID] does. The error wraps [ErrSyntax].
func Parse(s string) (ID, error) {
	raw, err := hex.DecodeString(s)
	switch {
	case err == nil && len(raw) == 16:
		return ID(raw), nil
	case err == nil && len(raw) == 12:
		return FromObjectID([12]byte(raw)), nil
	}
	return ID{}, fmt.Errorf("%w: %q has to be 32 or 24 hexadecimal digits", ErrSyntax, s)
}

// FromObjectID returns the ID that stands for one of 12 bytes, of which the first four are
// seconds since 1970: the form of MongoDB's ObjectId and of ØMQ Raft. Equal ones give equal
// IDs, others give others.
func FromObjectID(old [12]byte) ID {
	var id ID
	id.setTime(int64(binary.BigEndian.Uint32(old[:4])) * 1000)
	copy(id[6:14], old[4:])
	return id
}

// MarshalText implements [encoding.TextMarshaler].
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]; it reads what [Parse] does.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}
