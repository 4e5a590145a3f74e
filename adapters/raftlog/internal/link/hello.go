package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Hello is what one side of a connection knows about the other side after the handshake.
type Hello struct {
	Cluster string
	ID      string
	Addr    string
	Peer    bool
	Purpose Purpose
	// Claim distinguishes processes that use the same ID. It is empty for clients.
	Claim Claim
}

// Versions is a range of versions of the protocol, which comprises the handshake and all later
// messages.
type Versions struct{ Lowest, Highest byte }

// supported is the range of versions of the protocol that this package supports. Version 4 is the first
// version whose handshake contains a range.
var supported = Versions{Lowest: 4, Highest: 4}

// highestCommon returns the highest version that both ranges contain. If there is none, the error wraps
// errVersion.
func (v Versions) highestCommon(other Versions) (byte, error) {
	if n := min(v.Highest, other.Highest); n >= max(v.Lowest, other.Lowest) {
		return n, nil
	}
	return 0, fmt.Errorf("%w: the other side supports %v, this side %v", errVersion, other, v)
}

func (v Versions) String() string {
	if v.Lowest == v.Highest {
		return fmt.Sprintf("version %d", v.Lowest)
	}
	return fmt.Sprintf("versions %d to %d", v.Lowest, v.Highest)
}

// magic is the prefix of both messages of the handshake. By this prefix, a process recognizes a message
// of another version of the protocol, as opposed to another protocol.
const magic = "LERL"

// proofSize is the size of an HMAC-SHA256 in bytes.
const proofSize = 32

// These are the roles of the sender of a message. A later version can add roles, which this version
// rejects.
const (
	roleClient = 0
	rolePeer   = 1
)

var (
	errNotHandshake = errors.New("not a handshake of this protocol")
	errVersion      = errors.New("unsupported version of the protocol")
)

// greeting is the first message of the handshake, which the dialing side sends.
type greeting struct {
	versions Versions
	hello    Hello
	wantedID string // the ID that the other side must have; empty if any peer is accepted
	proof    []byte // proves that the sender knows the secret; empty if there is no secret
	content  []byte // the encoded greeting without the proof, which the proof covers
}

// reply is the second message of the handshake, which the accepting side sends. A reason other than
// accepted rejects the connection.
type reply struct {
	versions Versions
	reason   Reason
	id       string
	addr     string
	peer     bool
	claim    Claim
	text     string
	proof    []byte
	content  []byte
}

func appendText[T string | []byte](b []byte, s T) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// encodeContent encodes a message of the handshake without its proof. code is the purpose or the
// reason. The layout is the same in all versions: a later version appends texts, which earlier versions
// ignore.
func encodeContent(v Versions, code byte, peer bool, texts ...string) []byte {
	role := byte(roleClient)
	if peer {
		role = rolePeer
	}
	b := append([]byte(magic), v.Lowest, v.Highest, code, role, byte(len(texts)))
	for _, s := range texts {
		b = appendText(b, s)
	}
	return b
}

func (g *greeting) encodeContent() []byte {
	return encodeContent(g.versions, byte(g.hello.Purpose), g.hello.Peer, append(g.hello.Claim.encodedFields(), g.hello.Cluster, g.hello.ID, g.wantedID, g.hello.Addr)...)
}

func (g *greeting) encode() []byte { return appendText(g.encodeContent(), g.proof) }

func (r *reply) encodeContent() []byte {
	return encodeContent(r.versions, byte(r.reason), r.peer, append(r.claim.encodedFields(), r.id, r.addr, r.text)...)
}

func (r *reply) encode() []byte { return appendText(r.encodeContent(), r.proof) }

// message is a decoded message of the handshake.
type message struct {
	versions Versions
	code     byte
	peer     bool
	content  []byte // the bytes before the proof, which the proof covers
	proof    []byte
}

// decodeMessage decodes a message that encodeContent has encoded, with the proof after it. It sets the
// texts, and ignores texts that a later version has appended. After an error the texts are undefined.
func decodeMessage(b []byte, texts ...*string) (m message, err error) {
	fail := func(format string, args ...any) (message, error) {
		return m, fmt.Errorf("%w: %s", errNotHandshake, fmt.Sprintf(format, args...))
	}
	rest, ok := bytes.CutPrefix(b, []byte(magic))
	switch {
	case !ok:
		return m, errNotHandshake
	case len(rest) > 0 && rest[0] < 4: // versions below 4 send one version instead of a range
		_, err := supported.highestCommon(Versions{rest[0], rest[0]})
		return m, err
	case len(rest) < 5:
		return fail("the message is truncated")
	}
	m.versions, m.code = Versions{rest[0], rest[1]}, rest[2]
	m.peer = rest[3] == rolePeer
	role, count, rest := rest[3], int(rest[4]), rest[5:]
	switch {
	case m.versions.Highest < m.versions.Lowest:
		return fail("its lowest version is greater than its highest: %v", m.versions)
	case role > rolePeer:
		return fail("unknown role %d", role)
	case count < len(texts):
		return fail("it has %d texts, not %d", count, len(texts))
	}
	next := func() (text []byte, err error) {
		if len(rest) < 2 {
			_, err = fail("the message is truncated")
			return nil, err
		}
		n := int(binary.BigEndian.Uint16(rest))
		rest = rest[2:]
		switch {
		case n > maxField:
			_, err = fail("a text of %d bytes", n)
		case n > len(rest):
			_, err = fail("the message is truncated")
		default:
			text, rest = rest[:n], rest[n:]
		}
		return text, err
	}
	for i := range count {
		text, err := next()
		if err != nil {
			return m, err
		}
		if i < len(texts) {
			*texts[i] = string(text)
		}
	}
	m.content = b[:len(b)-len(rest)]
	if m.proof, err = next(); err != nil {
		return m, err
	}
	switch {
	case len(rest) > 0:
		return fail("%d bytes too many", len(rest))
	case len(m.proof) == 0:
		m.proof = nil
	case len(m.proof) != proofSize:
		return fail("a proof of %d bytes", len(m.proof))
	}
	return m, nil
}

func decodeGreeting(b []byte) (g greeting, err error) {
	var c [claimFields]string
	m, err := decodeMessage(b, &c[0], &c[1], &c[2], &c[3], &c[4], &g.hello.Cluster, &g.hello.ID, &g.wantedID, &g.hello.Addr)
	g.versions, g.hello.Purpose, g.hello.Peer, g.proof, g.content = m.versions, Purpose(m.code), m.peer, m.proof, m.content
	if err == nil {
		g.hello.Claim, err = decodeClaim(c)
	}
	return g, err
}

func decodeReply(b []byte) (r reply, err error) {
	var c [claimFields]string
	m, err := decodeMessage(b, &c[0], &c[1], &c[2], &c[3], &c[4], &r.id, &r.addr, &r.text)
	r.versions, r.reason, r.peer, r.proof, r.content = m.versions, Reason(m.code), m.peer, m.proof, m.content
	if err == nil {
		r.claim, err = decodeClaim(c)
	}
	return r, err
}
