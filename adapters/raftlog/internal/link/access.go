package link

import (
	"crypto/hmac"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
)

// secretKind is the kind of the secret that another process has proved to know in the handshake.
type secretKind byte

const (
	secretNone    secretKind = iota // the process has sent no proof
	secretUnknown                   // the proof is not valid for any secret of this process
	secretOfPeers
	secretOfClients
)

// access contains everything about this process on which the decision about a connecting process depends. The
// results of its methods depend only on access and on their arguments, which are the credentials and the claim
// of the connecting process.
type access struct {
	hasSecrets      bool // whether a process must prove to know a secret
	hasClientSecret bool // whether one of the secrets is for clients
	// hasCertificates reports whether TLS has verified the certificates of processes, so that the names
	// in them identify the processes.
	hasCertificates bool
	serverName      string // the name that the certificates of all peers contain, or ""
	peerNames       []string
	clientNames     []string
	// addrs contains the addresses, according to the log and the configuration, of the peer whose ID
	// the other process claims. It is empty for clients, and for peers that this process does not know.
	addrs []string
}

// checkSecret returns accepted if the secret that a process has shown permits the role that it claims,
// and otherwise the reason. It is called before all other checks, so that a process without a secret
// learns nothing else.
func (a access) checkSecret(shown secretKind, peer bool) Reason {
	switch {
	case !a.hasSecrets && shown == secretNone:
		return accepted
	case !a.hasSecrets:
		return ReasonNoSecret
	case peer && shown == secretOfPeers, !peer && shown == secretOfClients:
		return accepted
	case peer && shown == secretOfClients:
		return ReasonClientSecret
	case shown == secretOfPeers:
		return ReasonPeerSecret
	case !peer && !a.hasClientSecret:
		return ReasonNoClients
	}
	return ReasonSecret
}

// checkCertificate returns accepted if the certificate of a process permits the role and the ID that it
// claims, and otherwise the reason, with the details as text. TLS has verified the authority of the
// certificate before.
func (a access) checkCertificate(c *x509.Certificate, h Hello) (r Reason, text string) {
	names, list := a.peerNames, "allowed-names"
	if !h.Peer && len(a.clientNames) > 0 {
		names = a.clientNames
		list = "allowed-client-names"
	}
	switch {
	case !a.hasCertificates:
		return accepted, ""
	case c == nil:
		return ReasonName, "the process has shown no certificate"
	case len(names) > 0 && !hasName(c, names):
		return ReasonName, fmt.Sprintf("the certificate is for %s, and %s contains %s", strings.Join(certificateNames(c), ", "), list, strings.Join(names, ", "))
	case !h.Peer:
		return accepted, ""
	}
	addrs := a.addrs
	switch {
	case len(addrs) > 0 || a.serverName != "":
	case len(a.peerNames) > 0:
		addrs = []string{h.Addr} // the allowed names belong to peers only, including peers that join
	default:
		// Reject the peer, because a client could claim to be a new peer whose ID is a name in the
		// client's certificate.
		return ReasonName, fmt.Sprintf("peer %q is not known here, and without allowed-names its certificate could be that of a client: set allowed-names, or add the peer to peers", h.ID)
	}
	if isCertificateOf(c, h.ID, addrs, a.serverName) {
		return accepted, ""
	}
	wanted := fmt.Sprintf("the ID %q", h.ID)
	if len(addrs) > 0 {
		wanted += " or the host of " + strings.Join(addrs, ", ")
	}
	return ReasonName, fmt.Sprintf("the certificate is for %s; the certificate of peer %q must contain %s", strings.Join(certificateNames(c), ", "), h.ID, wanted)
}

// isCertificateOf reports whether a certificate belongs to the peer with the given ID and addresses: it
// contains the name serverName, or without a serverName the ID or the host of an address.
func isCertificateOf(c *x509.Certificate, id string, addrs []string, serverName string) bool {
	if serverName != "" {
		return c.VerifyHostname(serverName) == nil
	}
	if slices.Contains(alternativeNames(c), id) {
		return true
	}
	return slices.ContainsFunc(addrs, func(addr string) bool {
		host, _, err := net.SplitHostPort(addr)
		return err == nil && host != "" && c.VerifyHostname(host) == nil
	})
}

// hasName reports whether a certificate was issued for one of the names.
func hasName(c *x509.Certificate, names []string) bool {
	return slices.ContainsFunc(certificateNames(c), func(name string) bool { return slices.Contains(names, name) })
}

// certificateNames returns the names for which a certificate was issued: the alternative names and the
// common name of its subject.
func certificateNames(c *x509.Certificate) []string {
	names := alternativeNames(c)
	if c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	return names
}

// alternativeNames returns the DNS names, IP addresses and URIs for which a certificate was issued.
func alternativeNames(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	for _, uri := range c.URIs {
		names = append(names, uri.String())
	}
	return names
}

// secrets contains the secrets of peers and of clients. A process dials with the first secret of its
// role, and accepts all of them.
type secrets struct{ peers, clients [][]byte }

// ofRole returns the secrets of peers if peer is true, and the secrets of clients otherwise.
func (s secrets) ofRole(peer bool) [][]byte {
	if peer {
		return s.peers
	}
	return s.clients
}

// contains reports whether a secret is one of the secrets of a role.
func (s secrets) contains(peer bool, secret []byte) bool {
	return slices.ContainsFunc(s.ofRole(peer), func(other []byte) bool { return hmac.Equal(secret, other) })
}

// find returns the first secret for which matches returns true, and its kind. The kind is secretUnknown
// if there is none.
func (s secrets) find(matches func(secret []byte) bool) (secretKind, []byte) {
	if i := slices.IndexFunc(s.peers, matches); i >= 0 {
		return secretOfPeers, s.peers[i]
	}
	if i := slices.IndexFunc(s.clients, matches); i >= 0 {
		return secretOfClients, s.clients[i]
	}
	return secretUnknown, nil
}
