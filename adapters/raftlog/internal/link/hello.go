package link

import (
	"bytes"
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
	// Claim says which of the peers with that ID this is. Clients have none.
	Claim Claim
}

// version is the version of the handshake and of all messages after it.
const version = 3

// magic begins both messages of the handshake, so that strangers are told from versions.
const magic = "LERL"

// proofSize is that of an HMAC-SHA256.
const proofSize = 32

const flagPeer = 1

var (
	errNotHello = errors.New("not a hello of this protocol")
	errVersion  = errors.New("unsupported version of the protocol")
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
	claim  Claim
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

// encode writes a message of either kind: code is the purpose or the reason, texts come in
// the order of the fields, and the proof is the last.
func encode(code byte, peer bool, texts ...string) []byte {
	b := append([]byte(magic), version, code, flags(peer))
	for _, s := range texts {
		b = appendText(b, s)
	}
	return b
}

func (g *greeting) encode() []byte {
	return encode(byte(g.Purpose), g.Peer, append(g.Claim.texts(), g.Cluster, g.ID, g.to, g.Addr, string(g.proof))...)
}

func (a *answer) encode() []byte {
	return encode(byte(a.reason), a.peer, append(a.claim.texts(), a.id, a.addr, a.text, string(a.proof))...)
}

// decode reads what encode has written, with texts besides the proof. With an error, what it
// has read is of no use.
func decode(b []byte, texts ...*string) (code byte, peer bool, proof []byte, err error) {
	fail := func(format string, args ...any) (byte, bool, []byte, error) {
		return 0, false, nil, fmt.Errorf("%w: %s", errNotHello, fmt.Sprintf(format, args...))
	}
	rest, ok := bytes.CutPrefix(b, []byte(magic))
	switch {
	case !ok:
		return 0, false, nil, errNotHello
	case len(rest) > 0 && rest[0] != version: // whatever follows then
		return 0, false, nil, fmt.Errorf("%w: %d, this side has %d", errVersion, rest[0], version)
	case len(rest) < 3:
		return fail("it ends too early")
	case rest[2] > flagPeer:
		return fail("unknown flags")
	}
	code, peer, rest = rest[1], rest[2] == flagPeer, rest[3:]
	var last string
	for _, s := range append(texts, &last) {
		if len(rest) < 2 {
			return fail("it ends too early")
		}
		n := int(binary.BigEndian.Uint16(rest))
		rest = rest[2:]
		switch {
		case n > maxText:
			return fail("a text of %d bytes", n)
		case n > len(rest):
			return fail("it ends too early")
		}
		*s, rest = string(rest[:n]), rest[n:]
	}
	switch {
	case len(rest) > 0:
		return fail("%d bytes too many", len(rest))
	case last == "":
		return code, peer, nil, nil
	case len(last) != proofSize:
		return fail("a proof of %d bytes", len(last))
	}
	return code, peer, []byte(last), nil
}

func decodeGreeting(b []byte) (g greeting, err error) {
	var c [claimTexts]string
	code, peer, proof, err := decode(b, &c[0], &c[1], &c[2], &c[3], &g.Cluster, &g.ID, &g.to, &g.Addr)
	g.Purpose, g.Peer, g.proof = Purpose(code), peer, proof
	if err == nil {
		g.Claim, err = claimOf(c)
	}
	return g, err
}

func decodeAnswer(b []byte) (a answer, err error) {
	var c [claimTexts]string
	code, peer, proof, err := decode(b, &c[0], &c[1], &c[2], &c[3], &a.id, &a.addr, &a.text)
	a.reason, a.peer, a.proof = Reason(code), peer, proof
	if err == nil {
		a.claim, err = claimOf(c)
	}
	return a, err
}
