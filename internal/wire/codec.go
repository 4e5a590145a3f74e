// Package wire implements the encoding of ZooKeeper's client protocol: jute values, operation codes, and the
// records of requests and replies. Test servers and proxies use this package. The dialer of the library does not:
// it needs only four fields, of packets that may be incomplete, and decodes them itself (package zkdial).
package wire

import (
	"encoding/binary"
	"errors"
)

// ErrMalformed is the error of a Decoder whose bytes end within a record or contain an invalid value.
var ErrMalformed = errors.New("wire: malformed record")

// Decoder decodes jute values from a byte slice. After the first error each method returns a zero value, so a
// caller needs to call Err only once.
type Decoder struct {
	b   []byte
	err error
}

// NewDecoder returns a Decoder for b. The Decoder copies strings and buffers, so the caller may reuse b after
// decoding.
func NewDecoder(b []byte) Decoder { return Decoder{b: b} }

// Err returns the first error, or nil.
func (d *Decoder) Err() error { return d.err }

// Len returns the number of bytes that the Decoder has not decoded yet.
func (d *Decoder) Len() int { return len(d.b) }

func (d *Decoder) readBytes(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.err = ErrMalformed
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

// Int reads a 4-byte integer.
func (d *Decoder) Int() int32 {
	if p := d.readBytes(4); p != nil {
		return int32(binary.BigEndian.Uint32(p))
	}
	return 0
}

// Long reads an 8-byte integer.
func (d *Decoder) Long() int64 {
	if p := d.readBytes(8); p != nil {
		return int64(binary.BigEndian.Uint64(p))
	}
	return 0
}

// Bool reads one byte. As in Java's jute, any value but zero is true.
func (d *Decoder) Bool() bool {
	p := d.readBytes(1)
	return p != nil && p[0] != 0
}

// Buffer reads a length and as many bytes as the length says. It returns nil if the length is -1.
func (d *Decoder) Buffer() []byte {
	n := d.Int()
	if n == -1 {
		return nil
	}
	p := d.readBytes(int(n))
	if p == nil {
		return nil
	}
	return append(make([]byte, 0, len(p)), p...)
}

// String reads a length and as many bytes as the length says. It returns "" for null, whose length is -1.
func (d *Decoder) String() string {
	n := d.Int()
	if n == -1 {
		return ""
	}
	return string(d.readBytes(int(n)))
}

// Text reads a string and records an error if the string is null.
func (d *Decoder) Text() string {
	n := d.Int()
	if n == -1 {
		d.err = ErrMalformed
		return ""
	}
	return string(d.readBytes(int(n)))
}

// Count reads the length of a vector whose elements have at least size bytes each. It returns 0 for null. If the
// rest of the record is too short for this length, Count records an error, so that no caller allocates memory for
// the vector.
func (d *Decoder) Count(size int) int {
	n := int(d.Int())
	if n == -1 {
		return 0
	}
	if n < 0 || n > len(d.b)/size {
		d.err = ErrMalformed
		return 0
	}
	return n
}

// Strings reads a vector of strings.
func (d *Decoder) Strings() []string {
	n := d.Count(4)
	if n == 0 {
		return nil
	}
	out := make([]string, 0, n)
	for range n {
		out = append(out, d.Text())
	}
	return out
}

// Encoder appends jute values to B.
type Encoder struct{ B []byte }

// Int appends a 4-byte integer.
func (e *Encoder) Int(v int32) { e.B = binary.BigEndian.AppendUint32(e.B, uint32(v)) }

// Long appends an 8-byte integer.
func (e *Encoder) Long(v int64) { e.B = binary.BigEndian.AppendUint64(e.B, uint64(v)) }

// Bool appends a boolean as one byte.
func (e *Encoder) Bool(v bool) {
	if v {
		e.B = append(e.B, 1)
	} else {
		e.B = append(e.B, 0)
	}
}

// Buffer appends a length and the bytes. The length of nil is -1.
func (e *Encoder) Buffer(p []byte) {
	if p == nil {
		e.Int(-1)
		return
	}
	e.Int(int32(len(p)))
	e.B = append(e.B, p...)
}

// String appends a length and the bytes of s.
func (e *Encoder) String(s string) {
	e.Int(int32(len(s)))
	e.B = append(e.B, s...)
}

// Strings appends a vector of strings.
func (e *Encoder) Strings(v []string) {
	e.Int(int32(len(v)))
	for _, s := range v {
		e.String(s)
	}
}

// Begin starts a packet: it reserves space for the length of the packet, and returns the argument for End.
func (e *Encoder) Begin() int {
	e.Int(0)
	return len(e.B)
}

// End writes the length of the packet for which Begin has returned start.
func (e *Encoder) End(start int) {
	binary.BigEndian.PutUint32(e.B[start-4:], uint32(len(e.B)-start))
}
