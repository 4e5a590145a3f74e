package wire

import (
	"bytes"
	"reflect"
	"testing"
)

// TestCodec_RoundTrip checks that the decoder returns the values that the encoder has encoded, and an error after
// the end of the packet.
func TestCodec_RoundTrip(t *testing.T) {
	var e Encoder
	start := e.Begin()
	e.Int(-7)
	e.Long(1 << 40)
	e.Bool(true)
	e.Buffer(nil)
	e.Buffer([]byte{})
	e.Buffer([]byte("data"))
	e.String("päth")
	e.Strings([]string{"a", ""})
	e.ACLs([]ACL{{31, "world", "anyone"}})
	e.End(start)
	d := NewDecoder(e.B)
	if n := d.Int(); int(n) != len(e.B)-4 {
		t.Errorf("decoded a length of %d, want %d", n, len(e.B))
	}
	if a, b, c := d.Int(), d.Long(), d.Bool(); a != -7 || b != 1<<40 || !c {
		t.Error(a, b, c)
	}
	if a, b, c := d.Buffer(), d.Buffer(), d.Buffer(); a != nil || b == nil || string(c) != "data" {
		t.Error(a, b, c)
	}
	if s, v := d.String(), d.Strings(); s != "päth" || !reflect.DeepEqual(v, []string{"a", ""}) {
		t.Error(s, v)
	}
	if v := d.readACLs(); len(v) != 1 || v[0].ID != "anyone" || d.Err() != nil || d.Len() != 0 {
		t.Error(v, d.Err(), d.Len())
	}
	if d.Int(); d.Err() == nil {
		t.Error("no error after the end of the packet")
	}
}

// TestRecords_RoundTrip checks that the decoder returns the handshake, the watch event and the header that the
// encoder has encoded.
func TestRecords_RoundTrip(t *testing.T) {
	var e Encoder
	request := ConnectRequest{1, 2, 3, 4, []byte("password"), true, true}
	reply := ConnectReply{1, 2, 3, []byte("password"), true, true}
	event := WatchEvent{Type: 3, State: 3, Path: "/a"}
	e.ConnectRequest(&request)
	d := NewDecoder(e.B)
	if r := d.ReadConnectRequest(); !reflect.DeepEqual(r, request) || d.Len() != 0 {
		t.Error(r, d.Len())
	}
	e.B = nil
	e.ConnectReply(&reply)
	d = NewDecoder(e.B)
	if r := d.ReadConnectReply(); !reflect.DeepEqual(r, reply) || d.Len() != 0 {
		t.Error(r, d.Len())
	}
	e.B = nil
	e.WatchEvent(event)
	e.Header(Header{Xid: 5, Op: Sync})
	d = NewDecoder(e.B)
	if h, ev, next := d.ReadReplyHeader(), d.ReadWatchEvent(), d.ReadHeader(); h.Xid != EventXid || h.Code != 0 || ev != event ||
		next != (Header{5, Sync}) || d.Err() != nil || d.Len() != 0 {
		t.Error(h, ev, next, d.Err(), d.Len())
	}
}

// TestDecoder_RejectsInvalidLengths checks that the decoder rejects a length that is negative or greater than the
// packet, without an allocation of that size.
func TestDecoder_RejectsInvalidLengths(t *testing.T) {
	for _, b := range []string{"\x7f\xff\xff\xff", "\xff\xff\xff\xfe", "\x00\x00\x00\x09abc"} {
		for _, f := range []func(*Decoder){
			func(d *Decoder) { d.Buffer() }, func(d *Decoder) { _ = d.String() }, func(d *Decoder) { d.Strings() }, func(d *Decoder) { d.readACLs() },
		} {
			if n := testing.AllocsPerRun(1, func() {
				d := NewDecoder([]byte(b))
				f(&d)
				if d.Err() == nil {
					t.Errorf("no error for %q", b)
				}
			}); n > 2 {
				t.Errorf("%v allocations for an invalid length", n)
			}
		}
	}
}

// FuzzRequest checks that the decoder does not panic, does not change its input, and returns at most as much data
// as the input contains.
func FuzzRequest(f *testing.F) {
	for op := range opNames {
		f.Add(int32(op), []byte("\x00\x00\x00\x02/a\x00\x00\x00\x01x\x00\x00\x00\x00\x00\x00\x00\x00"))
	}
	f.Add(int32(Multi), []byte("\x00\x00\x00\x0d\x00\xff\xff\xff\xff\x00\x00\x00\x02/a\xff\xff\xff\xff\xff\xff\xff\xff\x01\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, op int32, b []byte) {
		in := bytes.Clone(b)
		d := NewDecoder(b)
		r, err := d.ReadRequest(Header{Op: Op(op)})
		size := len(r.Path) + len(r.Data) + len(r.Scheme) + 9*len(r.Ops) + 4*(len(r.DataW)+len(r.ExistW)+len(r.ChildW)+len(r.Persistent)+len(r.Recursive)) + 12*len(r.ACL)
		if err == nil && size > len(b) {
			t.Errorf("%d bytes were decoded to %d bytes of data", len(b), size)
		}
		if !bytes.Equal(in, b) {
			t.Error("the input was changed")
		}
		for _, read := range []func(*Decoder){
			func(d *Decoder) { d.ReadConnectRequest() },
			func(d *Decoder) { d.ReadConnectReply() },
			func(d *Decoder) { d.ReadReplyHeader(); d.ReadWatchEvent() },
		} {
			d := NewDecoder(b)
			read(&d)
		}
	})
}
