package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Hello describes one side of a connection.
type Hello struct {
	Cluster string
	ID      string
	Addr    string
	Peer    bool
	Purpose Purpose
	// Claim distinguishes processes that use the same ID. It is empty if Peer is false.
	Claim Claim
}

// version is the version of the handshake and of all later messages.
const version = 3

// magic is the prefix of both messages of the handshake. It distinguishes another version of the
// protocol from another protocol.
const magic = "LERL"

// proofSize is the size of an HMAC-SHA256 in bytes.
const proofSize = 32

const flagPeer = 1

var (
	errNotHandshake = errors.New("not a handshake of this protocol")
	errVersion      = errors.New("unsupported version of the protocol")
)

// greeting is the first message of the handshake, which the dialing side sends.
type greeting struct {
	hello    Hello
	wantedID string // of the other side; empty if any peer is accepted
	proof    []byte // empty if there is no secret
}

// reply is the second message of the handshake, which the accepting side sends. If reason is not
// accepted, the connection is rejected.
type reply struct {
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

func peerFlag(peer bool) byte {
	if peer {
		return flagPeer
	}
	return 0
}

// encodeMessage encodes a message of the handshake. code is the purpose or the reason. The last text
// is the proof.
func encodeMessage(code byte, peer bool, texts ...string) []byte {
	b := append([]byte(magic), version, code, peerFlag(peer))
	for _, s := range texts {
		b = appendText(b, s)
	}
	return b
}

func (g *greeting) encode() []byte {
	return encodeMessage(byte(g.hello.Purpose), g.hello.Peer, append(g.hello.Claim.fields(), g.hello.Cluster, g.hello.ID, g.wantedID, g.hello.Addr, string(g.proof))...)
}

func (r *reply) encode() []byte {
	return encodeMessage(byte(r.reason), r.peer, append(r.claim.fields(), r.id, r.addr, r.text, string(r.proof))...)
}

// decodeMessage is the inverse of encodeMessage. It sets the texts and returns the proof. After an
// error the texts are undefined.
func decodeMessage(b []byte, texts ...*string) (code byte, peer bool, proof []byte, err error) {
	fail := func(format string, args ...any) (byte, bool, []byte, error) {
		return 0, false, nil, fmt.Errorf("%w: %s", errNotHandshake, fmt.Sprintf(format, args...))
	}
	rest, ok := bytes.CutPrefix(b, []byte(magic))
	switch {
	case !ok:
		return 0, false, nil, errNotHandshake
	case len(rest) > 0 && rest[0] != version: // the rest depends on the version
		return 0, false, nil, fmt.Errorf("%w: %d, this side has %d", errVersion, rest[0], version)
	case len(rest) < 3:
		return fail("it is truncated")
	case rest[2] > flagPeer:
		return fail("unknown flags")
	}
	code, peer, rest = rest[1], rest[2] == flagPeer, rest[3:]
	var last string
	for _, s := range append(texts, &last) {
		if len(rest) < 2 {
			return fail("it is truncated")
		}
		n := int(binary.BigEndian.Uint16(rest))
		rest = rest[2:]
		switch {
		case n > maxField:
			return fail("a text of %d bytes", n)
		case n > len(rest):
			return fail("it is truncated")
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
	var c [claimFields]string
	code, peer, proof, err := decodeMessage(b, &c[0], &c[1], &c[2], &c[3], &g.hello.Cluster, &g.hello.ID, &g.wantedID, &g.hello.Addr)
	g.hello.Purpose, g.hello.Peer, g.proof = Purpose(code), peer, proof
	if err == nil {
		g.hello.Claim, err = decodeClaim(c)
	}
	return g, err
}

func decodeReply(b []byte) (r reply, err error) {
	var c [claimFields]string
	code, peer, proof, err := decodeMessage(b, &c[0], &c[1], &c[2], &c[3], &r.id, &r.addr, &r.text)
	r.reason, r.peer, r.proof = Reason(code), peer, proof
	if err == nil {
		r.claim, err = decodeClaim(c)
	}
	return r, err
}
