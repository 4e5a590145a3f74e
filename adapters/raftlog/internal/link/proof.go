package link

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
)

// exporter is the label under which TLS gives keying material for the proofs.
const exporter = "leaderelection raftlog v1"

// The roles keep one side's proof from being the other's.
const (
	roleDials   = "dials"
	roleAccepts = "accepts"
)

// channel returns what only the two ends of a TLS connection have. Somebody who stands in
// between has two connections, with two of these: a proof that he passes on is of the wrong
// one.
func channel(conn *tls.Conn) ([]byte, error) {
	state := conn.ConnectionState()
	return state.ExportKeyingMaterial(exporter, nil, 32)
}

// proveGreeting is the proof of the side that dials: of the secret, for all that it says.
func proveGreeting(secret []byte, g *greeting, channel []byte) []byte {
	b := appendText(nil, roleDials)
	b = append(b, version, byte(g.Purpose), flags(g.Peer))
	b = appendText(b, g.Cluster)
	b = appendText(b, g.ID)
	b = appendText(b, g.to)
	b = appendText(b, g.Addr)
	for _, s := range g.Claim.texts() {
		b = appendText(b, s)
	}
	return sum(secret, b, channel)
}

// proveAnswer is the proof of the side that accepts, made after it has seen the other's: it
// answers the questions of nobody who does not know the secret.
func proveAnswer(secret []byte, g *greeting, a *answer, channel []byte) []byte {
	b := appendText(nil, roleAccepts)
	b = append(b, version, byte(g.Purpose), flags(a.peer), byte(a.reason))
	b = appendText(b, g.Cluster)
	b = appendText(b, a.id)
	b = appendText(b, g.ID)
	b = appendText(b, a.addr)
	b = appendText(b, a.text)
	for _, s := range a.claim.texts() {
		b = appendText(b, s)
	}
	return sum(secret, b, channel)
}

func sum(secret, said, channel []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write(said)
	mac.Write(channel)
	return mac.Sum(nil)
}

// proven compares in constant time.
func proven(want, got []byte) bool { return hmac.Equal(want, got) }
