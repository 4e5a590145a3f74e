package link

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
)

// exporterLabel is the label of the keying material that TLS exports for the proofs.
const exporterLabel = "leaderelection raftlog v1"

// The roles distinguish the proofs of the two sides.
const (
	roleDials   = "dials"
	roleAccepts = "accepts"
)

// channelBinding returns a value that only the two sides of a TLS connection know. A man in the middle
// has two connections with different values, so that a proof of one is not valid on the other.
func channelBinding(conn *tls.Conn) ([]byte, error) {
	state := conn.ConnectionState()
	return state.ExportKeyingMaterial(exporterLabel, nil, 32)
}

// greetingProof returns the proof of the dialing side. It proves that the sender of the greeting knows
// the secret, and covers the whole greeting.
func greetingProof(secret []byte, g *greeting, binding []byte) []byte {
	b := appendText(nil, roleDials)
	b = append(b, version, byte(g.hello.Purpose), peerFlag(g.hello.Peer))
	b = appendText(b, g.hello.Cluster)
	b = appendText(b, g.hello.ID)
	b = appendText(b, g.wantedID)
	b = appendText(b, g.hello.Addr)
	for _, s := range g.hello.Claim.fields() {
		b = appendText(b, s)
	}
	return computeMAC(secret, b, binding)
}

// replyProof returns the proof of the accepting side, which covers the whole reply. It must be called
// only after the proof of the greeting was verified: a process that does not know the secret must not
// receive a proof.
func replyProof(secret []byte, g *greeting, r *reply, binding []byte) []byte {
	b := appendText(nil, roleAccepts)
	b = append(b, version, byte(g.hello.Purpose), peerFlag(r.peer), byte(r.reason))
	b = appendText(b, g.hello.Cluster)
	b = appendText(b, r.id)
	b = appendText(b, g.hello.ID)
	b = appendText(b, r.addr)
	b = appendText(b, r.text)
	for _, s := range r.claim.fields() {
		b = appendText(b, s)
	}
	return computeMAC(secret, b, binding)
}

func computeMAC(secret, message, binding []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write(message)
	mac.Write(binding)
	return mac.Sum(nil)
}

// equalProofs compares proofs in constant time.
func equalProofs(want, got []byte) bool { return hmac.Equal(want, got) }
