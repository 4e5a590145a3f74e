package link

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
)

// exporterLabel is the label under which TLS exports the keying material for the proofs.
const exporterLabel = "leaderelection raftlog v1"

// These texts are a part of the proofs, so that a proof of one side is not valid as a proof of the
// other side.
const (
	roleDials   = "dials"
	roleAccepts = "accepts"
)

// channelBinding returns a value that only the two sides of a TLS connection know. A man in the middle
// has two connections with different values, so a proof of one connection is not valid on the other.
func channelBinding(conn *tls.Conn) ([]byte, error) {
	state := conn.ConnectionState()
	return state.ExportKeyingMaterial(exporterLabel, nil, 32)
}

// greetingProof returns the proof of the dialing side. It proves that the sender of the greeting knows
// the secret, and covers the whole content of the greeting, including fields that this version does not
// know.
func greetingProof(secret, content, binding []byte) []byte {
	return computeMAC(secret, appendText(appendText(nil, roleDials), content), binding)
}

// replyProof returns the proof of the accepting side, which covers the contents of the greeting and of
// the reply. The caller must have verified the proof in the greeting: a process that does not know the
// secret must not receive a proof.
func replyProof(secret, greeting, reply, binding []byte) []byte {
	b := appendText(nil, roleAccepts)
	return computeMAC(secret, appendText(appendText(b, greeting), reply), binding)
}

func computeMAC(secret, message, binding []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write(message)
	mac.Write(binding)
	return mac.Sum(nil)
}

// equalProofs reports whether two proofs are equal, in constant time.
func equalProofs(want, got []byte) bool { return hmac.Equal(want, got) }
