package link

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// Reason is the reason why a process has rejected a connection. A process that does not know the secret
// learns only that fact, or that the versions differ.
type Reason byte

// These are the reasons of a refusal. Their numbers are a part of the protocol and must not change.
const (
	accepted          Reason = 0
	ReasonSecret      Reason = 1  // the secrets of the two sides differ, or there is a man in the middle
	ReasonNoSecret    Reason = 2  // the accepting side has no secret
	ReasonCluster     Reason = 3  // the two sides belong to different clusters
	ReasonID          Reason = 4  // a peer with another ID uses the address
	ReasonSameID      Reason = 5  // both sides have the same ID
	ReasonPurpose     Reason = 6  // the accepting side does not serve the purpose, or not for clients
	ReasonRemoved     Reason = 7  // the cluster has removed the peer
	ReasonNotAccepted Reason = 8  // another reason, which the accepting side describes in the text
	ReasonVersion     Reason = 9  // the two sides have no version of the protocol in common
	ReasonPlain       Reason = 10 // only the accepting side uses TLS
	ReasonFounding    Reason = 11 // two clusters with the same name were created separately
	ReasonRecovered   Reason = 12 // the cluster was recovered from the data of another peer
	ReasonInstance    Reason = 13 // the ID of the peer belongs to another directory
	ReasonEarlier     Reason = 14 // the directory of the peer is a copy, or an earlier state was restored
	ReasonRunning     Reason = 15 // another process with the same ID is connected
	// Two clusters with the same name were created separately, and the sender has no committed entry.
	ReasonUncommitted  Reason = 16
	ReasonPeerSecret   Reason = 17 // a client has shown the secret of peers
	ReasonClientSecret Reason = 18 // a peer has shown the secret of clients
	ReasonNoClients    Reason = 19 // the accepting side has no secret for clients
	ReasonName         Reason = 20 // the certificate is not issued for the peer, or not for an allowed name
	// The receiver determines the following reasons itself. They are not sent.
	ReasonUnproven    Reason = 128 // the accepting side has not proved that it knows the secret
	ReasonCertificate Reason = 129 // one side has rejected the certificate of the other side
	ReasonProtocol    Reason = 130 // the other side uses another protocol than this package
)

// reasonTexts contains a description of each reason with a remedy.
var reasonTexts = map[Reason]string{
	ReasonSecret:      "the secret differs, or the connection is intercepted",
	ReasonNoSecret:    "the other side has no secret: configure it on both sides or on none",
	ReasonCluster:     "the other side belongs to another cluster: check the name of the cluster and the address",
	ReasonID:          "another peer has this address: check the IDs and addresses of the peers",
	ReasonSameID:      "the other side has the same ID: every peer needs a unique ID",
	ReasonPurpose:     "the other side does not support this kind of connection",
	ReasonRemoved:     "the peer was removed from the cluster: add it with a new ID",
	ReasonNotAccepted: "the other side rejects the connection",
	ReasonVersion:     "the two sides have no version of the protocol in common: update the older side",
	ReasonPlain:       "the other side uses TLS: configure the secret of the cluster or TLS on this side",
	ReasonFounding: "the two peers belong to different clusters with the same name, which were created separately: if the file of one " +
		"lists wrong peers, correct it; a peer that joins a cluster must not be listed in its own peers, and must start with an empty directory",
	ReasonUncommitted:  "the two peers were founded with different lists of peers: correct the file of the one whose list is wrong, and restart that peer",
	ReasonRecovered:    "the cluster was recovered without this peer",
	ReasonInstance:     "the other side knows another directory of the peer",
	ReasonEarlier:      "the other side knows a later state of the peer's directory",
	ReasonRunning:      "another process that uses the same ID and the same data is connected: stop one of the two",
	ReasonPeerSecret:   "this is the secret of peers, which clients must not have: clients need the secret of client-secret-file",
	ReasonClientSecret: "this is the secret of clients, with which a process cannot act as a peer: peers need the secret of secret-file",
	ReasonNoClients:    "the secret differs, and the other side has no secret for clients: set client-secret-file at the peers, and use its secret",
	ReasonName:         "the certificate does not permit this role or ID",
	ReasonUnproven:     "the other side does not have the secret, or the connection is intercepted",
	ReasonCertificate:  "a certificate was rejected",
	ReasonProtocol: "the other side uses another protocol or another configuration " +
		"(secret, TLS, insecure)",
}

func (r Reason) String() string {
	if s, ok := reasonTexts[r]; ok {
		return s
	}
	return fmt.Sprintf("reason %d, which this version does not know", byte(r))
}

// RefusedError is returned if one side of a connection has rejected the other. It wraps api.ErrRefused.
type RefusedError struct {
	Reason Reason
	// Text contains details of the refusal, for example those that the other side has sent. It may be
	// empty. The texts of a process that has not proved to be a peer are dropped.
	Text string
	// Proven reports whether the other side has sent the reason, and has proved to be a process of the
	// cluster. Without authentication, every reason is considered as proven. A refusal that is not
	// proven can come from any process that uses the address of a peer.
	Proven bool
	// Err is the error on this side that has caused the refusal, or nil.
	Err error
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("%s: %s", api.ErrRefused, e.Reason)
	if e.Text != "" {
		s += " (" + makePrintable(e.Text) + ")"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// makePrintable replaces those characters of a received text that could control a terminal.
func makePrintable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// Unwrap returns api.ErrRefused. It also returns api.ErrUnproven unless Proven is true, and Err unless
// Err is nil.
func (e *RefusedError) Unwrap() []error {
	wrapped := []error{api.ErrRefused}
	if !e.Proven {
		wrapped = append(wrapped, api.ErrUnproven)
	}
	if e.Err != nil {
		wrapped = append(wrapped, e.Err)
	}
	return wrapped
}
