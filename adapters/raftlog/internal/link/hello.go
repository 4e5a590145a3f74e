package link

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Hello is what one side of a connection says of itself.
type Hello struct {
	Cluster string
	ID      string
	Addr    string
	Peer    bool
	Purpose Purpose
}

// version is that of the handshake and of the frames after it.
const version = 1

// magic begins both messages of the handshake, so that strangers are told from versions.
const magic = "LERL"

// proofSize is that of an HMAC-SHA256.
const proofSize = 32

const flagPeer = 1

var (
	errNotHello = errors.New("not a hello of this protocol")
	errVersion  = errors.New("another version of the protocol")
)

// greeting is the first message, by the side that dials.
type greeting struct {
	Hello
	to    string // the ID that is wanted; empty for any
	proof []byte // empty without a secret
}

// answer is the second message, by the side that accepts. With a reason it is a refusal.
type answer struct {
	reason Reason
	id     string
	addr   string
	peer   bool
	text   string
	proof  []byte
}

func appendText[T string | []byte](b []byte, s T) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

func flags(peer bool) byte {
	if peer {
		return flagPeer
	}
	return 0
}

func (g *greeting) encode() []byte {
	b := append([]byte(magic), version, byte(g.Purpose), flags(g.Peer))
	b = appendText(b, g.Cluster)
	b = appendText(b, g.ID)
	b = appendText(b, g.to)
	b = appendText(b, g.Addr)
	return appendText(b, g.proof)
}

func (a *answer) encode() []byte {
	b := append([]byte(magic), version, byte(a.reason), flags(a.peer))
	b = appendText(b, a.id)
	b = appendText(b, a.addr)
	b = appendText(b, a.text)
	return appendText(b, a.proof)
}

// decoder reads a message of the handshake. After the first thing that is wrong it returns
// zeros, and err says what it was.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) take(n int) []byte {
	if d.err == nil && n > len(d.rest) {
		d.err = fmt.Errorf("%w: it ends too early", errNotHello)
	}
	if d.err != nil {
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (d *decoder) text() string {
	b := d.take(2)
	if len(b) < 2 {
		return ""
	}
	n := int(binary.BigEndian.Uint16(b))
	if n > maxText {
		d.err = fmt.Errorf("%w: a text of %d bytes", errNotHello, n)
	}
	return string(d.take(n))
}

func (d *decoder) peer() bool {
	f := d.byte()
	if d.err == nil && f > flagPeer {
		d.err = fmt.Errorf("%w: unknown flags", errNotHello)
	}
	return f == flagPeer
}

func (d *decoder) proof() []byte {
	p := d.text()
	if d.err == nil && p != "" && len(p) != proofSize {
		d.err = fmt.Errorf("%w: a proof of %d bytes", errNotHello, len(p))
	}
	if p == "" {
		return nil
	}
	return []byte(p)
}

func (d *decoder) begin() {
	if string(d.take(len(magic))) != magic {
		d.err = errNotHello
	}
	if v := d.byte(); d.err == nil && v != version {
		d.err = fmt.Errorf("%w: %d, and here is %d", errVersion, v, version)
	}
}

func (d *decoder) end() error {
	if d.err == nil && len(d.rest) > 0 {
		d.err = fmt.Errorf("%w: %d bytes too many", errNotHello, len(d.rest))
	}
	return d.err
}

func decodeGreeting(b []byte) (g greeting, err error) {
	d := decoder{rest: b}
	d.begin()
	g.Purpose = Purpose(d.byte())
	g.Peer = d.peer()
	g.Cluster = d.text()
	g.ID = d.text()
	g.to = d.text()
	g.Addr = d.text()
	g.proof = d.proof()
	return g, d.end()
}

func decodeAnswer(b []byte) (a answer, err error) {
	d := decoder{rest: b}
	d.begin()
	a.reason = Reason(d.byte())
	a.peer = d.peer()
	a.id = d.text()
	a.addr = d.text()
	a.text = d.text()
	a.proof = d.proof()
	return a, d.end()
}
