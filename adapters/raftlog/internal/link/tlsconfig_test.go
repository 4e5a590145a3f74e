package link

import (
	"crypto/tls"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestTLS_RejectsWrongCertificates checks that each side rejects a wrong or missing certificate or secret and
// receives the reason, and that a verification function of the user is always called.
func TestTLS_RejectsWrongCertificates(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)

	withoutCertificate := func(i *Identity) {
		i.TLS.Certificates = nil
		i.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &tls.Certificate{}, nil
		}
	}
	for name, c := range map[string]struct {
		change         func(dials, accepts *Identity)
		dials, accepts Reason // the reason that each side must return; accepted means an ErrRefused with any reason
	}{
		"another authority's client": {func(d, _ *Identity) {
			*d = theirs.identity("a")
			d.TLS.RootCAs = ours.ca.Pool // the client trusts the authority of the server
		}, ReasonCertificate, ReasonCertificate},
		"another authority's server":         {func(_, a *Identity) { *a = theirs.identity("b") }, ReasonCertificate, accepted},
		"another host":                       {func(d, _ *Identity) { d.TLS.ServerName = "z" }, ReasonCertificate, accepted},
		"no certificate":                     {func(d, _ *Identity) { withoutCertificate(d) }, ReasonCertificate, ReasonCertificate},
		"only the dialing side has a secret": {func(d, _ *Identity) { d.Secret = secret }, ReasonNoSecret, ReasonNoSecret},
		"only the other side has a secret":   {func(_, a *Identity) { a.Secret = secret }, ReasonSecret, ReasonSecret},
	} {
		t.Run(name, func(t *testing.T) {
			dials, accepts := ours.identity("a"), ours.identity("b")
			c.change(&dials, &accepts)
			d, a := connect(t, tcpPair, dials, accepts, "b", PurposeRaft)
			requireReason(t, d.err, c.dials)
			if c.accepts == accepted {
				require.ErrorIs(t, a.err, api.ErrRefused)
			} else {
				requireReason(t, a.err, c.accepts)
			}
		})
	}
	t.Run("a chosen configuration that requires none", func(t *testing.T) {
		self := ours.identity("a")
		withoutCertificate(&self)
		lax := ours.identity("b")
		chosen := lax.TLS.Clone()
		lax.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return chosen, nil }
		_, a := connect(t, tcpPair, self, lax, "b", PurposeRaft)
		requireReason(t, a.err, ReasonCertificate)
		require.Equal(t, tls.NoClientCert, chosen.ClientAuth, "the configuration of the user was changed")
	})
	t.Run("a verification of the user", func(t *testing.T) {
		for _, want := range []error{nil, errors.New("rejected")} {
			self := ours.identity("b")
			self.TLS.ClientAuth = tls.RequireAnyClientCert
			self.TLS.VerifyConnection = func(tls.ConnectionState) error { return want }
			dials := theirs.identity("a")
			dials.TLS.RootCAs = ours.ca.Pool
			d, a := connect(t, memoryPair, dials, self, "b", PurposeRaft)
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
}

func TestTLSConfig_RequiresTLS13WithoutResumption(t *testing.T) {
	ours := newAuthority(t)
	self := ours.identity("b")
	self.TLS.MinVersion = tls.VersionTLS10
	self.TLS.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	near, _ := memoryPair(t)
	server, err := self.serverTLS()
	require.NoError(t, err)
	for _, c := range []*tls.Config{server, self.clientTLS(near, peerB.Addr), secretIdentity("a").clientTLS(near, peerB.Addr)} {
		require.EqualValues(t, tls.VersionTLS13, c.MinVersion)
		require.True(t, c.SessionTicketsDisabled)
		require.Nil(t, c.ClientSessionCache)
	}
	require.Equal(t, tls.RequireAndVerifyClientCert, server.ClientAuth)
	require.EqualValues(t, tls.VersionTLS10, self.TLS.MinVersion, "the configuration of the user was changed")
	require.Equal(t, tls.NoClientCert, self.TLS.ClientAuth, "the configuration of the user was changed")

	// serverTLS replaces a weaker ClientAuth of the user.
	self.TLS.ClientAuth = tls.RequireAnyClientCert
	server, err = self.serverTLS()
	require.NoError(t, err)
	require.Equal(t, tls.RequireAndVerifyClientCert, server.ClientAuth)

	first, err := secretIdentity("a").serverTLS()
	require.NoError(t, err)
	second, err := secretIdentity("b").serverTLS()
	require.NoError(t, err)
	require.Equal(t, first.Certificates, second.Certificates, "two certificates were created")
}

func TestAccept_RejectsTLS12(t *testing.T) {
	near, far := memoryPair(t)
	accepted := startAccept(t, far, secretIdentity("b"))
	err := tls.Client(near, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}).Handshake()
	require.Error(t, err)
	near.Close()
	require.ErrorIs(t, accepted().err, api.ErrRefused)
}

// TestServerTLS_RejectsGetConfigForClientWithoutClientCAs checks that a configuration that
// GetConfigForClient returns must contain ClientCAs. Otherwise any certificate would be accepted.
func TestServerTLS_RejectsGetConfigForClientWithoutClientCAs(t *testing.T) {
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
