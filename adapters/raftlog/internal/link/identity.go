// Package link implements authenticated connections between the processes of a cluster. A connection
// identifies the other side and carries frames. The user chooses one of three ways to authenticate the
// processes: a secret of the cluster, certificates, or explicitly no authentication. The choice applies
// to all connections of a process.
package link

import (
	"crypto/tls"
	"fmt"
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// MinSecret is the minimum length of the secret of a cluster in bytes. Peers and clients reject shorter
// secrets, which can be guessed.
const MinSecret = 16

// Purpose is the purpose of a connection.
type Purpose byte

// These are the purposes of connections.
const (
	PurposeRaft     Purpose = 1 // messages between peers
	PurposeSnapshot Purpose = 2 // one snapshot that a peer sends to another peer
	PurposeClient   Purpose = 3 // calls of a client
	PurposeStream   Purpose = 4 // one stream of a client
)

// ForClients reports whether clients may dial connections for this purpose.
func (p Purpose) ForClients() bool { return p == PurposeClient || p == PurposeStream }

func (p Purpose) isKnown() bool { return p >= PurposeRaft && p <= PurposeStream }

func (p Purpose) String() string {
	switch p {
	case PurposeRaft:
		return "raft"
	case PurposeSnapshot:
		return "snapshot"
	case PurposeClient:
		return "client"
	case PurposeStream:
		return "stream"
	}
	return fmt.Sprintf("Purpose(%d)", byte(p))
}

// maxField is the maximum length in bytes of each text in a handshake.
const maxField = 512

// Identity describes this process and how it authenticates itself and others. The user must choose
// exactly one of the following: Secret, TLS (with or without Secret), or Insecure.
type Identity struct {
	// Cluster is the name of the cluster. A process rejects connections of other clusters.
	Cluster string
	// ID is the ID of the peer or of the client. A secret proves the role of a process, but not that
	// the process uses its own ID. A certificate proves the ID of a peer.
	ID string
	// Peer is true for peers and false for clients.
	Peer bool
	// Addr is the address of a peer, host:port. It is empty for clients.
	Addr string
	// Claim identifies the data directory and the process of a peer. It is empty for clients.
	Claim Claim
	// Secret is known only to the peers of the cluster, and ClientSecret to the peers and the clients.
	// A client needs only ClientSecret. A peer without a ClientSecret refuses clients. Connections are
	// encrypted by TLS 1.3 with certificates that are not verified. Both sides prove that they know the
	// secret of the role of the dialing side, and the proofs depend on the keys of the connection,
	// which prevents man-in-the-middle attacks. A process that impersonates a peer receives a proof,
	// from which it can guess a weak secret offline. So secrets should be random and have at least
	// MinSecret bytes. This package does not check that.
	Secret, ClientSecret []byte
	// Secrets, if not nil, returns the secrets to use instead of Secret and ClientSecret. Any goroutine
	// may call it, once for each handshake.
	Secrets func() api.Secrets
	// TLS contains the certificates of the user. This package does not modify it. The version is TLS 1.3,
	// and both sides must have certificates. The dialing side needs Certificates or GetClientCertificate.
	// The accepting side needs ClientCAs, unless ClientAuth is RequireAnyClientCert and VerifyConnection or
	// VerifyPeerCertificate is set. If ServerName is empty, the certificate of the accepting side must
	// contain the host of the address that is passed to Dial, or the host of the remote address if the
	// passed address contains no host. On the dialing side, VerifyConnection receives that host as
	// ServerName.
	TLS *tls.Config
	// PeerNames contains the names of which the certificate of a peer must contain one, and ClientNames
	// those for clients. If PeerNames is empty, every certificate is accepted that contains the ID of
	// the peer, or the host of an address of AddrsOf. If ClientNames is empty, PeerNames applies to
	// clients as well.
	PeerNames, ClientNames []string
	// AddrsOf returns the addresses of a peer according to the log and the configuration. The accepting
	// side calls it with the ID that the dialing side claims. A nil AddrsOf is the same as a function
	// that knows no peer.
	AddrsOf func(id string) []string
	// Insecure disables authentication and encryption. Then a process can claim any role and any ID.
	Insecure bool
	// Versions is the range of versions of the protocol that the process supports. The default is the
	// range that this package supports. Only tests set Versions.
	Versions Versions
}

func (i Identity) versionRange() Versions {
	if i.Versions == (Versions{}) {
		return supported
	}
	return i.Versions
}

// Validate returns an error that wraps api.ErrInvalid if the Identity is invalid.
func (i Identity) Validate() error {
	if err := i.validateDial(); err != nil || !i.Peer {
		return err
	}
	return i.validateAccept()
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", api.ErrInvalid, fmt.Sprintf(format, args...))
}

// validateCommon validates the fields of the Identity that both sides use.
func (i Identity) validateCommon() error {
	switch {
	case i.Cluster == "" || len(i.Cluster) > maxField:
		return invalid("the name of the cluster has %d bytes: must be from 1 to %d", len(i.Cluster), maxField)
	case i.ID == "" || len(i.ID) > maxField:
		return invalid("the ID has %d bytes: must be from 1 to %d", len(i.ID), maxField)
	case len(i.Claim.Founding) > maxClaimField || len(i.Claim.Instance) > maxClaimField || len(i.Claim.Process) > maxClaimField:
		return invalid("a string of the claim has more than %d bytes", maxClaimField)
	case len(i.Claim.Founders) > maxField:
		return invalid("the description of the founding has %d bytes, the limit is %d", len(i.Claim.Founders), maxField)
	case len(i.Addr) > maxField:
		return invalid("the address has %d bytes, the limit is %d", len(i.Addr), maxField)
	case i.Insecure && (i.hasSecrets() || i.TLS != nil):
		return invalid("Insecure cannot be combined with secrets or TLS")
	case !i.Insecure && !i.hasSecrets() && i.TLS == nil:
		return invalid("one of Secret, TLS and Insecure is required")
	case i.TLS == nil && len(i.PeerNames)+len(i.ClientNames) > 0:
		return invalid("PeerNames and ClientNames restrict certificates: they require TLS")
	case i.TLS != nil && i.TLS.InsecureSkipVerify && !hasVerification(i.TLS) && len(i.PeerNames)+len(i.ClientNames) > 0:
		return invalid("PeerNames and ClientNames restrict verified certificates, and TLS.InsecureSkipVerify disables the verification: set VerifyConnection, or remove one of the two")
	case i.TLS != nil && i.TLS.MaxVersion != 0 && i.TLS.MaxVersion < tls.VersionTLS13:
		return invalid("TLS.MaxVersion is below TLS 1.3")
	}
	_, err := i.currentSecrets()
	return err
}

func (i Identity) hasSecrets() bool {
	return i.Secrets != nil || len(i.Secret) > 0 || len(i.ClientSecret) > 0
}

// currentSecrets returns the secrets that are valid now. If there are any, they contain a secret for
// the role of this process. The error wraps api.ErrInvalid.
func (i Identity) currentSecrets() (s secrets, err error) {
	switch {
	case i.Secrets != nil:
		now := i.Secrets()
		s = secrets{now.Peers, now.Clients}
	default:
		if len(i.Secret) > 0 {
			s.peers = [][]byte{i.Secret}
		}
		if len(i.ClientSecret) > 0 {
			s.clients = [][]byte{i.ClientSecret}
		}
	}
	switch own := s.ofRole(i.Peer); {
	case !i.hasSecrets():
	case len(own) == 0 && i.Peer:
		return s, invalid("there is a secret of clients, and none of peers: peers need their own")
	case len(own) == 0:
		return s, invalid("there is no secret of clients")
	}
	for _, secret := range slices.Concat(s.peers, s.clients) {
		switch {
		case len(secret) == 0:
			return s, invalid("a secret is empty")
		case s.contains(true, secret) && s.contains(false, secret):
			return s, invalid("a secret of peers is also a secret of clients: a client could act as a peer; use different secrets")
		}
	}
	return s, nil
}

// accessFor returns what this process considers when it decides about a process that claims the given
// ID.
func (i Identity) accessFor(s secrets, id string) access {
	a := access{
		hasSecrets: i.hasSecrets(), hasClientSecret: len(s.clients) > 0,
		peerNames: i.PeerNames, clientNames: i.ClientNames,
	}
	if i.TLS != nil {
		a.hasCertificates = !i.TLS.InsecureSkipVerify || hasVerification(i.TLS) || !i.hasSecrets()
		a.serverName = i.TLS.ServerName
	}
	if i.AddrsOf != nil {
		a.addrs = i.AddrsOf(id)
	}
	return a
}

// hasVerification reports whether a TLS configuration contains a function of the user that verifies
// certificates.
func hasVerification(c *tls.Config) bool {
	return c.VerifyConnection != nil || c.VerifyPeerCertificate != nil
}

func (i Identity) validateDial() error {
	if err := i.validateCommon(); err != nil || i.TLS == nil {
		return err
	}
	switch c := i.TLS; {
	case len(c.Certificates) == 0 && c.GetClientCertificate == nil:
		return invalid("TLS has no certificate: set Certificates or GetClientCertificate")
	case c.InsecureSkipVerify && !hasVerification(c) && !i.hasSecrets():
		return invalid("TLS.InsecureSkipVerify requires VerifyConnection or a Secret")
	}
	return nil
}

func (i Identity) validateAccept() error {
	if err := i.validateCommon(); err != nil || i.TLS == nil {
		return err
	}
	return validateServer(i.TLS, i.hasSecrets())
}

func validateServer(c *tls.Config, secret bool) error {
	switch {
	case c.GetConfigForClient != nil:
		return nil // serverTLS validates the configurations that GetConfigForClient returns
	case len(c.Certificates) == 0 && c.GetCertificate == nil:
		return invalid("TLS has no certificate: set Certificates or GetCertificate")
	case c.ClientCAs == nil && !hasVerification(c) && !secret:
		// Require the user to set ClientCAs, because otherwise crypto/tls would accept the authorities
		// of the system, which issue certificates to anyone.
		return invalid("TLS does not specify the authorities of client certificates: set ClientCAs")
	}
	return nil
}
