package link

import (
	"crypto/tls"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/internal/testenv/certtest"
)

// authority is one of users' own.
type authority struct{ *certtest.Authority }

func newAuthority(t testing.TB) authority { return authority{certtest.New(t)} }

// identity is that of a peer with a certificate for the host that others find it by.
func (a authority) identity(id string) Identity {
	return Identity{Cluster: "c1", ID: id, Peer: true, Addr: id + ":7", Claim: claimed(id), TLS: a.Config(id)}
}

func TestCertificates(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)

	t.Run("another authority's client", func(t *testing.T) {
		near, far := tcp(t)
		stranger := theirs.identity("a")
		stranger.TLS.RootCAs = ours.Pool // it would even trust us
		stranger.ServerName = "b"
		d, a := connect(t, near, far, stranger, ours.identity("b"), "b", PurposeRaft)
		requireReason(t, a.err, ReasonCertificate)
		requireReason(t, d.err, ReasonCertificate)
	})
	t.Run("another authority's server", func(t *testing.T) {
		near, far := pair(t)
		d, a := connect(t, near, far, ours.identity("a"), theirs.identity("b"), "b", PurposeRaft)
		requireReason(t, d.err, ReasonCertificate)
		require.ErrorIs(t, a.err, api.ErrRefused)
	})
	t.Run("another host", func(t *testing.T) {
		near, far := pair(t)
		self := ours.identity("a")
		self.ServerName = "z"
		d, _ := connect(t, near, far, self, ours.identity("b"), "b", PurposeRaft)
		requireReason(t, d.err, ReasonCertificate)
	})
	t.Run("none", func(t *testing.T) {
		near, far := tcp(t)
		self := ours.identity("a")
		self.ServerName = "b"
		self.TLS.Certificates = nil
		self.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &tls.Certificate{}, nil
		}
		d, a := connect(t, near, far, self, ours.identity("b"), "b", PurposeRaft)
		requireReason(t, a.err, ReasonCertificate)
		requireReason(t, d.err, ReasonCertificate)
	})
	t.Run("a configuration by client that asks for none", func(t *testing.T) {
		near, far := tcp(t)
		self := ours.identity("a")
		self.ServerName = "b"
		self.TLS.Certificates = nil
		self.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &tls.Certificate{}, nil
		}
		lax := ours.identity("b")
		chosen := lax.TLS.Clone()
		lax.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return chosen, nil }
		_, a := connect(t, near, far, self, lax, "b", PurposeRaft)
		requireReason(t, a.err, ReasonCertificate)
		require.Equal(t, tls.NoClientCert, chosen.ClientAuth, "the user's was changed")
	})
	t.Run("an own verification", func(t *testing.T) {
		for _, want := range []error{nil, errors.New("not this one")} {
			near, far := pair(t)
			self := ours.identity("b")
			self.TLS.ClientAuth = tls.RequireAnyClientCert
			self.TLS.VerifyConnection = func(tls.ConnectionState) error { return want }
			dials := theirs.identity("a")
			dials.TLS.RootCAs = ours.Pool
			d, a := connect(t, near, far, dials, self, "b", PurposeRaft)
			if want == nil {
				require.NoError(t, d.err)
				require.NoError(t, a.err)
				continue
			}
			require.ErrorIs(t, a.err, want)
			require.ErrorIs(t, a.err, api.ErrRefused)
			require.Error(t, d.err)
		}
	})
	t.Run("the secret is proven too", func(t *testing.T) {
		near, far := pair(t)
		x, y := ours.identity("a"), ours.identity("b")
		x.Secret, y.Secret = secret, []byte("another")
		d, a := connect(t, near, far, x, y, "b", PurposeRaft)
		requireReason(t, d.err, ReasonSecret)
		requireReason(t, a.err, ReasonSecret)
	})
	t.Run("only one side has a secret", func(t *testing.T) {
		with := ours.identity("a")
		with.Secret = secret
		near, far := pair(t)
		d, _ := connect(t, near, far, with, ours.identity("b"), "b", PurposeRaft)
		requireReason(t, d.err, ReasonNoSecret)
		with.ID = "b"
		with.TLS = ours.identity("b").TLS
		near, far = pair(t)
		d, _ = connect(t, near, far, ours.identity("a"), with, "b", PurposeRaft)
		requireReason(t, d.err, ReasonSecret)
	})
}

func TestTLSConfig(t *testing.T) {
	ours := newAuthority(t)
	self := ours.identity("b")
	self.TLS.MinVersion = tls.VersionTLS10
	self.TLS.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	near, _ := pair(t)
	server, err := self.serverTLS()
	require.NoError(t, err)
	for _, c := range []*tls.Config{server, self.clientTLS(near), withSecret("a").clientTLS(near)} {
		require.EqualValues(t, tls.VersionTLS13, c.MinVersion)
		require.True(t, c.SessionTicketsDisabled)
		require.Nil(t, c.ClientSessionCache)
	}
	require.Equal(t, tls.RequireAndVerifyClientCert, server.ClientAuth)
	require.EqualValues(t, tls.VersionTLS10, self.TLS.MinVersion, "the user's was changed")
	require.Equal(t, tls.NoClientCert, self.TLS.ClientAuth, "the user's was changed")

	// Accepting without ClientAuth being set, or asked for in a weaker way.
	self.TLS.ClientAuth = tls.RequireAnyClientCert
	server, err = self.serverTLS()
	require.NoError(t, err)
	require.Equal(t, tls.RequireAndVerifyClientCert, server.ClientAuth)

	first, err := withSecret("a").serverTLS()
	require.NoError(t, err)
	second, err := withSecret("b").serverTLS()
	require.NoError(t, err)
	require.Equal(t, first.Certificates, second.Certificates, "one certificate does for the process")
}

func TestOldTLSRefused(t *testing.T) {
	near, far := pair(t)
	accepted := accepting(t, far, withSecret("b"))
	err := tls.Client(near, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}).Handshake()
	require.Error(t, err)
	near.Close()
	require.ErrorIs(t, accepted().err, api.ErrRefused)
}

// A configuration that is chosen by client, or is left as it is for this one, has to say whose
// certificates others need: without that it would be anybody's.
func TestChosenConfigSaysWhomItTrusts(t *testing.T) {
	self := newAuthority(t).identity("b")
	self.TLS.ClientCAs = nil
	lax := self.TLS.Clone()
	for what, chosen := range map[string]*tls.Config{"chosen": lax, "as it is": nil} {
		self.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return chosen, nil }
		c, err := self.serverTLS()
		require.NoError(t, err)
		_, err = c.GetConfigForClient(&tls.ClientHelloInfo{})
		require.ErrorIs(t, err, api.ErrInvalid, what)
	}
}
