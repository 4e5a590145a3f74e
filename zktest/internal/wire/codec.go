// Package wire holds what the ZooKeeper client protocol looks like on the
// wire: the jute encoding, the operation codes and the records of the requests.
package wire

import (
	"encoding/binary"
	"errors"
)

// ErrMalformed reports a record that does not fit its bytes.
var ErrMalformed = errors.New("wire: malformed record")

// Decoder reads jute values off a byte slice. After the first error every
// further read returns a zero value, so that a caller checks Err once.
type Decoder struct {
	b   []byte
	err error
}

// NewDecoder returns a Decoder that reads b. Strings and buffers are copied out,
// so that b can be used again when decoding is done.
func NewDecoder(b []byte) Decoder { return Decoder{b: b} }

// Err is the first error met, or nil.
func (d *Decoder) Err() error { return d.err }

// Len is the number of bytes not read yet.
func (d *Decoder) Len() int { return len(d.b) }

func (d *Decoder) take(n int) []byte {
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
	if p := d.take(4); p != nil {
		return int32(binary.BigEndian.Uint32(p))
	}
	return 0
}

// Long reads an 8-byte integer.
func (d *Decoder) Long() int64 {
	if p := d.take(8); p != nil {
		return int64(binary.BigEndian.Uint64(p))
	}
	return 0
}

// Bool reads one byte. As in Java's jute, any value but zero is true.
func (d *Decoder) Bool() bool {
	p := d.take(1)
	return p != nil && p[0] != 0
}

// Buffer reads a length and that many bytes. A length of -1 gives nil.
func (d *Decoder) Buffer() []byte {
	n := d.Int()
	if n == -1 {
		return nil
	}
	p := d.take(int(n))
	if p == nil {
		return nil
	}
	return append(make([]byte, 0, len(p)), p...)
}

// String reads a length and that many bytes of text; null reads as "".
func (d *Decoder) String() string {
	n := d.Int()
	if n == -1 {
		return ""
	}
	return string(d.take(int(n)))
}

// Text reads a string that must not be null.
func (d *Decoder) Text() string {
	n := d.Int()
	if n == -1 {
		d.err = ErrMalformed
		return ""
	}
	return string(d.take(int(n)))
}

// Count reads the length of a vector whose elements take at least size bytes
// each. A null vector counts as an empty one. A length that cannot fit the rest
// of the record is an error, so that no caller allocates for it.
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

// Bool appends one byte.
func (e *Encoder) Bool(v bool) {
	if v {
		e.B = append(e.B, 1)
	} else {
		e.B = append(e.B, 0)
	}
}

// Buffer appends a length and the bytes; nil goes out as length -1.
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

// Begin starts a packet: it leaves room for the length and returns where it is.
func (e *Encoder) Begin() int {
	e.Int(0)
	return len(e.B)
}

// End writes the length of the packet that began at start.
func (e *Encoder) End(start int) {
	binary.BigEndian.PutUint32(e.B[start-4:], uint32(len(e.B)-start))
}
