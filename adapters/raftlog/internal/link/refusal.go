package link

import (
	"fmt"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// Reason is why a connection was refused. Who has not proven the secret learns of the
// reasons only that, or that the versions differ.
type Reason byte

// The reasons. They are numbers of the protocol: they are never given another meaning.
const (
	accepted          Reason = 0
	ReasonSecret      Reason = 1  // the sides have different secrets, or somebody stands between them
	ReasonNoSecret    Reason = 2  // the side that accepts has no secret
	ReasonCluster     Reason = 3  // the sides are of different clusters
	ReasonID          Reason = 4  // another peer is at that address
	ReasonSameID      Reason = 5  // the side that dials uses the ID of the one that accepts
	ReasonPurpose     Reason = 6  // it is nothing that clients may ask for, or that is served
	ReasonRemoved     Reason = 7  // the peer was removed from the cluster
	ReasonNotAccepted Reason = 8  // Accept's caller does not want it
	ReasonVersion     Reason = 9  // the sides have different versions of the protocol
	ReasonPlain       Reason = 10 // the side that accepts uses TLS, and the other does not
	ReasonFounding    Reason = 11 // the sides are of clusters with one name that were founded separately
	ReasonRecovered   Reason = 12 // the cluster was recovered from other data than those of the peer
	ReasonInstance    Reason = 13 // the peer has not the data that the ID belongs to
	ReasonEarlier     Reason = 14 // the peer's data are a copy, or were put back to an earlier state
	ReasonRunning     Reason = 15 // another process that uses the ID is connected
	// These are not sent.
	ReasonUnproven    Reason = 128 // the side that accepts has not proven the secret
	ReasonCertificate Reason = 129 // one side's certificate is not to the other's liking
	ReasonProtocol    Reason = 130 // the other side talks something else
)

var advice = map[Reason]string{
	ReasonSecret:      "the secret differs, or the connection is intercepted",
	ReasonNoSecret:    "the other side has no secret: configure it on both sides or on none",
	ReasonCluster:     "it belongs to another cluster: check the name of the cluster and the address",
	ReasonID:          "another peer has this address: check the IDs and addresses of the peers",
	ReasonSameID:      "the other side has the same ID: every peer needs a unique ID",
	ReasonPurpose:     "the other side does not support this kind of connection",
	ReasonRemoved:     "the peer was removed from the cluster: add it with a new ID",
	ReasonNotAccepted: "the other side rejects the connection",
	ReasonVersion:     "the versions of the protocol differ: update the older side",
	ReasonPlain:       "the other side uses TLS: configure the secret of the cluster or TLS on this side",
	ReasonFounding: "the two peers belong to different clusters with the same name, which were created separately: a peer " +
		"that joins a cluster must not be listed in its own peers, and must start with an empty directory",
	ReasonRecovered: "the cluster was recovered without this peer: remove the peer's directory, and let it join under a new ID",
	ReasonInstance: "the peer does not have the data of its ID, because it has lost its directory or uses another one: " +
		"remove the ID from the cluster (raftlog config --delete) and let the peer join under a new ID",
	ReasonEarlier: "the peer's directory is a copy or was restored to an earlier state, and another process has used this ID since then: " +
		"remove the copy; if the newer directory is lost, remove the ID from the cluster and let the peer join under a new ID",
	ReasonRunning:  "another process that uses the same ID and the same data is connected: stop one of the two, and remove the copy of the directory",
	ReasonUnproven: "the other side does not have the secret, or the connection is intercepted",
	ReasonCertificate: "a certificate was rejected: both sides need TLS with certificates " +
		"that the other side trusts, or both only the secret",
	ReasonProtocol: "the other side uses another protocol or another configuration " +
		"(secret, TLS, insecure)",
}

func (r Reason) String() string {
	if s, ok := advice[r]; ok {
		return s
	}
	return fmt.Sprintf("reason %d, which this version does not know", byte(r))
}

// RefusedError says that one side has not accepted the other. It is api.ErrRefused.
type RefusedError struct {
	Reason Reason
	// Text is what the other side says besides, or what was found; it may be empty.
	Text string
	// Err is what made it so on this side, if anything did.
	Err error
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("%s: %s", api.ErrRefused, e.Reason)
	if e.Text != "" {
		s += " (" + e.Text + ")"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns api.ErrRefused, and Err if there is one.
func (e *RefusedError) Unwrap() []error {
	if e.Err == nil {
		return []error{api.ErrRefused}
	}
	return []error{api.ErrRefused, e.Err}
}
