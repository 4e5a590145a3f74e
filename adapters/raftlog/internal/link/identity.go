// Package link makes a connection between two processes of a cluster one that both can
// trust: it says who is at the other end, and carries frames. Which of three ways proves it
// is the users' choice, and there is no way around it: a secret of the cluster, their own
// certificates, or nothing at all where they have said so.
package link

import (
	"crypto/tls"
	"fmt"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// MinSecret is the minimum length of a cluster's secret in bytes: shorter secrets can be
// guessed. Peers and clients check it.
const MinSecret = 16

// Purpose is what a connection is for.
type Purpose byte

// The purposes of connections.
const (
	PurposeRaft     Purpose = 1 // peers' messages to each other
	PurposeSnapshot Purpose = 2 // one snapshot, from peer to peer
	PurposeClient   Purpose = 3 // the calls of a client
	PurposeStream   Purpose = 4 // one stream for a client
)

// ForClients reports whether clients may dial connections for the purpose.
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

// maxText limits every text of a handshake, in bytes.
const maxText = 512

// Identity is who this process is, and how it proves that it is of the cluster. Exactly one
// of three has to be chosen: Secret, TLS (with or without Secret), or Insecure.
type Identity struct {
	// Cluster is the cluster's name. Connections between clusters are refused.
	Cluster string
	// ID is the peer's or the client's. Secrets and certificates prove that a process is of
	// the cluster; that it does not take another's ID is left to the cluster's own.
	ID string
	// Peer is whether it is a peer; clients are not.
	Peer bool
	// Addr is where others reach a peer, host:port. Clients have none.
	Addr string
	// Claim is what a peer says of its data and of its process. Clients have none.
	Claim Claim
	// Secret is known to all processes of the cluster and to nobody else. Connections are
	// encrypted by TLS 1.3 with certificates of no meaning, and both sides prove by the
	// connection's keys that they know the secret, so that nobody can stand in between.
	// Whoever answers in a peer's place can try guesses at the secret at leisure: it should
	// be random, of 16 bytes at least. Shorter ones are not refused.
	Secret []byte
	// TLS is for users with certificates of their own. It is not modified. TLS is 1.3 and
	// both sides show certificates, those who dial by Certificates or GetClientCertificate,
	// those who accept by ClientCAs; unless ClientAuth is RequireAnyClientCert with an own
	// VerifyConnection or VerifyPeerCertificate.
	TLS *tls.Config
	// ServerName is the name that the certificate of the side that accepts has to be for, if
	// TLS has none; by default the host of the connection's remote address. It has no meaning
	// without TLS.
	ServerName string
	// Insecure has everybody believed who reaches the port, and nothing encrypted.
	Insecure bool
}

// Validate tells what is wrong with an Identity, by an error that wraps api.ErrInvalid.
func (i Identity) Validate() error {
	if err := i.validateDial(); err != nil || !i.Peer {
		return err
	}
	return i.validateAccept()
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", api.ErrInvalid, fmt.Sprintf(format, args...))
}

func (i Identity) validate() error {
	switch {
	case i.Cluster == "" || len(i.Cluster) > maxText:
		return invalid("the name of the cluster has %d bytes: must be from 1 to %d", len(i.Cluster), maxText)
	case i.ID == "" || len(i.ID) > maxText:
		return invalid("the ID has %d bytes: must be from 1 to %d", len(i.ID), maxText)
	case len(i.Claim.Founding) > maxClaim || len(i.Claim.Instance) > maxClaim || len(i.Claim.Process) > maxClaim:
		return invalid("a text of the claim has more than %d bytes", maxClaim)
	case len(i.Addr) > maxText:
		return invalid("the address has %d bytes, the limit is %d", len(i.Addr), maxText)
	case i.Insecure && (len(i.Secret) > 0 || i.TLS != nil):
		return invalid("Insecure cannot be combined with Secret or TLS")
	case !i.Insecure && len(i.Secret) == 0 && i.TLS == nil:
		return invalid("one of Secret, TLS and Insecure is required")
	case i.TLS != nil && i.TLS.MaxVersion != 0 && i.TLS.MaxVersion < tls.VersionTLS13:
		return invalid("TLS.MaxVersion is below TLS 1.3")
	}
	return nil
}

// verifies is whether a configuration has a verification of its own.
func verifies(c *tls.Config) bool {
	return c.VerifyConnection != nil || c.VerifyPeerCertificate != nil
}

func (i Identity) validateDial() error {
	if err := i.validate(); err != nil || i.TLS == nil {
		return err
	}
	switch c := i.TLS; {
	case len(c.Certificates) == 0 && c.GetClientCertificate == nil:
		return invalid("TLS has no certificate: set Certificates or GetClientCertificate")
	case c.InsecureSkipVerify && !verifies(c) && len(i.Secret) == 0:
		return invalid("TLS.InsecureSkipVerify requires VerifyConnection or a Secret")
	}
	return nil
}

func (i Identity) validateAccept() error {
	if err := i.validate(); err != nil || i.TLS == nil {
		return err
	}
	return validateServer(i.TLS, len(i.Secret) > 0)
}

func validateServer(c *tls.Config, secret bool) error {
	switch {
	case c.GetConfigForClient != nil:
		return nil // what it returns is looked at when it does
	case len(c.Certificates) == 0 && c.GetCertificate == nil:
		return invalid("TLS has no certificate: set Certificates or GetCertificate")
	case c.ClientCAs == nil && !verifies(c) && !secret:
		// Without them crypto/tls takes the system's, and with them half the world.
		return invalid("TLS does not specify the authorities of client certificates: set ClientCAs")
	}
	return nil
}
